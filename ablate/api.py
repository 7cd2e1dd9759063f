"""The main commands as functions: plan, run, build."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import nn

from ablate.analysis.findings import read_findings
from ablate.analysis.report import StudyReport
from ablate.errors import ArgumentError, EngineError, SpaceError, check_argument, check_count
from ablate.execution.checkpoint import checkpoints_folder
from ablate.execution.driver import Limits, run_study
from ablate.execution.engine import Engine, Observer, ObserverGroup
from ablate.execution.environment import describe_environment, undeclared_code
from ablate.execution.local import LocalEngine
from ablate.execution.options import RunOptions, plugin_files, show_in_signature
from ablate.execution.timing import Bench
from ablate.execution.tracking import TrackingObserver
from ablate.extras import require
from ablate.locations import DEFAULT_STORE, cache_folder, check_home
from ablate.nn.model import build_model
from ablate.notebook import Study
from ablate.planning.packing import Packing
from ablate.planning.plan import EarlierTrials, Plan
from ablate.planning.planner import Planner, make_plan
from ablate.plugins import load_plugin
from ablate.render.formats import Place, find_format
from ablate.spec import reading
from ablate.spec.model import ModelSpec
from ablate.spec.sentences import describe
from ablate.spec.space import SpaceSpec, TrainerSpace
from ablate.spec.variant import VariantSpec
from ablate.store import Store, open_store
from ablate.trackers import Tracker, find_tracker
from ablate.trained.weights import weights_folder

Plugins = str | Path | Sequence[str | Path]
"""Python files that define kinds of one's own."""


def load_space(location: str | Path, *, data: str | None = None, plugins: Plugins = ()) -> SpaceSpec:
    """Read a space by its path or by the name of a space that is shipped.

    Args:
        location: The path or the name.
        data: The address of data instead of the one that the space names.
        plugins: Files that define further kinds; they are imported into this process.

    Raises:
        SpaceError: The file is missing or invalid; with file, line and column.
        PluginError: A plugin is missing or broken.
    """
    _load(plugins)
    check_argument("load_space: location", location, (str, Path), "the path or the name of a space")
    _load(reading.plugins_of(location))
    return reading.load_space(location, data=data)


def plan(space: SpaceSpec | str | Path, *, cache: Path | None = None, plugins: Plugins = ()) -> Plan:
    """Every variant and trial that a space asks for, with their cost; trains nothing, but prepares the data.

    Args:
        space: What to find out, or its file or name.
        cache: Folder of prepared data; None: the user's cache folder.
        plugins: Files that define further kinds; they are imported into this process.

    Raises:
        AblateError: The baseline is invalid, or the data cannot be prepared.
    """
    return make_plan(Planner(_read(space, plugins), _folder(cache), lambda line: None))


@show_in_signature
def run(
    space: SpaceSpec | str | Path,
    *,
    store: Store | str | Path = DEFAULT_STORE,
    observer: Observer | None = None,
    **options: Any,
) -> Study:
    """Run or resume a space; finished trials of the store are not trained again.

    The study that it returns has the answer, the table, the curves and the figures; its `result` says how the run
    ended. It reads the store again at each look, so a store that was given open must stay open.

    Args:
        space: What to find out, or its file or name.
        store: An open store, or where it is.
        options: The fields of `RunOptions`, such as `workers=2` or `device="cpu"`. Plugins are imported into this
            process and into the workers.

    Raises:
        AblateError: The space, its data, the device, the engine or the store cannot be used.
    """
    check_argument("store", store, (Store, str, Path), "an open store, a path or a URL")
    chosen = RunOptions(**options)
    space = _read(space, chosen.plugins)
    resources = chosen.resources_of_job(space.resources)
    needed = list(dict.fromkeys([*chosen.plugins, *space.plugins]))
    chosen = replace(chosen, cache=chosen.folder, resources=resources, plugins=needed)
    observer = observer or Observer()
    trackers = [find_tracker(address) for address in chosen.log_to]
    if resources.shard and chosen.pack is not None and chosen.pack > 1:
        raise EngineError(
            "the members of a pack share a program, and their weights cannot be divided among GPUs",
            where="--pack",
            expected="1, as `resources.shard` is true",
            got=str(chosen.pack),
            remedy="Leave one of them out.",
        )
    checkpoints = checkpoints_folder(store.where if isinstance(store, Store) else str(store))
    # The engine first: a mistake in what was asked of it leaves no empty store behind.
    with (
        make_engine(chosen, space.name, Path(resources.checkpoint_dir or checkpoints)) as trainer,
        nullcontext(store) if isinstance(store, Store) else open_store(store) as opened,
    ):
        observer.say(f"store: {opened.where}")
        if opened.warning:
            observer.say(opened.warning)
        earlier = EarlierTrials(opened, accept=chosen.accept_changed_code)
        planner = Planner(space, chosen.folder, observer.say, weights=weights_folder(opened.where), earlier=earlier)
        if isinstance(space, TrainerSpace):
            for line in undeclared_code(space.trainer):
                observer.say(line)
        environment = describe_environment(trainer.device)
        packing = Packing(1 if resources.shard else chosen.pack, trainer.device)
        with _track(trackers, space.name, opened, observer) as watching:
            bench = _bench(space, chosen, trainer.device, environment.device, observer)
            result = run_study(
                planner,
                opened,
                trainer,
                environment,
                watching,
                packing,
                bench,
                Limits(chosen.max_trials, chosen.max_seconds),
            )
    return Study(space.name, store, result=result)


def make_engine(options: RunOptions, study: str = "ablate", checkpoints: Path = Path("checkpoints")) -> Engine:
    """The engine that the options name.

    Args:
        checkpoints: The folder of checkpoints of all studies (local).

    Raises:
        EngineError: There is no such engine, its packages are missing, or its device or cluster is not available.
    """
    if options.engine == "local":
        return LocalEngine(options, checkpoints / study)
    if options.engine == "ray":
        require("ray", "the engine `ray`", where="--engine ray")
        check_home("Ray", "--engine ray")
        from ablate.execution.ray.engine import RayEngine

        return RayEngine(options, study)
    raise EngineError("there is no such engine", where="--engine", expected="local or ray", got=repr(options.engine))


def _bench(space: SpaceSpec, options: RunOptions, device: str, description: str, observer: Observer) -> Bench | None:
    """Where to time the variants; None if nobody asked, or if this process cannot train as the trials did."""
    resources = options.resources_of_job()
    if not (options.time or space.timing or space.objective.measure == "seconds"):
        return None
    if options.engine != "local" or resources.shard or resources.processes > 1:
        where = "on a cluster" if options.engine != "local" else "on several GPUs"
        refused = f"variants are timed in one process on one device, and these train {where}"
        if options.time:
            raise EngineError(refused, where="--time", remedy="Leave it out; run it on one device with smaller models.")
        observer.say(f"{refused}: they are not timed")
        return None
    inference = space.times_inference and space.model.family == "decoder"
    return Bench(torch.device(device), options.threads, description, options.time, inference)


@contextmanager
def _track(trackers: Sequence[Tracker], study: str, store: Store, observer: Observer) -> Iterator[Observer]:
    """Within it a study runs whose events go to an observer and to trackers; then they get what they lack."""
    if not trackers:
        yield observer
        return
    tracking = TrackingObserver(study, trackers, observer.say)
    try:
        yield ObserverGroup(observer, tracking)
        tracking.catch_up(store)
        findings = read_findings(store, study)
        tracking.conclude(str(find_format("md").render(findings, Place())), _differences(findings.report))
    finally:
        tracking.close()


def _differences(report: StudyReport) -> dict[str, float]:
    """Each variant's difference from the baseline and its interval, by `VARIANT/NAME`."""
    return {
        f"{row.name}/{name}": value
        for row in report.variants
        if row.difference is not None
        for name in ("difference", "low", "high")
        if (value := getattr(row.difference, name)) is not None
    }


def _folder(cache: str | Path | None) -> Path:
    if cache is None:
        return cache_folder()
    check_argument("cache", cache, (str, Path), "a folder")
    return Path(cache)


def _read(space: SpaceSpec | str | Path, plugins: Plugins) -> SpaceSpec:
    check_argument("space", space, (SpaceSpec, str, Path), "a SpaceSpec, or the path or name of a space")
    if not isinstance(space, SpaceSpec):
        return load_space(space, plugins=plugins)
    _load(plugins)
    _load(space.plugins)
    return space


def _load(plugins: Plugins) -> None:
    for plugin in plugin_files(plugins):
        load_plugin(plugin)


def build(
    spec: ModelSpec | VariantSpec,
    *,
    vocabulary: int | None = None,
    context: int | None = None,
    seeds: Sequence[int] | None = None,
    cache: Path | None = None,
) -> nn.Module:
    """The module of a spec: token ids [K, B, T] to logits [K, B, T, V].

    Args:
        spec: A model, or a variant, whose task then says the vocabulary and the context.
        vocabulary: Number of token ids V; for a bare model 256 unless given.
        context: The longest input in tokens; for a bare model 128 unless given.
        seeds: Of the initial values, one for each member of the pack; their number is K. A trial of seed 3 starts from
            the values of `seeds=[3]`. None: one seed, drawn from torch's generator, so that `torch.manual_seed` decides
            the values and a second call gives others.
        cache: Folder of prepared data, for a variant.

    Raises:
        ArgumentError: An argument is of the wrong kind.
        SpaceError: A mixer cannot work on inputs as long as the context.
        DataError: The data of a variant's task cannot be prepared.
    """
    remedy = "`load_space(NAME).resolve({})` gives the variant of a space's baseline."
    check_argument("spec", spec, (ModelSpec, VariantSpec), "a ModelSpec or a VariantSpec", remedy)
    for name, number in (("vocabulary", vocabulary), ("context", context)):
        if number is not None:
            check_count(name, number)
    if seeds is None:
        seeds = [int(torch.randint(2**31, ()).item())]
    check_argument("seeds", seeds, Sequence, "a list of whole numbers, one for each member")
    for seed in seeds:
        check_argument("seeds", seed, int, "a list of whole numbers, one for each member")
    if not seeds:
        raise ArgumentError("a pack has at least one member", where="seeds", got="no seeds", remedy="Give one or more.")
    classes = 0
    if isinstance(spec, VariantSpec):
        folder = _folder(cache)
        shape = spec.task.open(folder, spec.task.prepare(folder, lambda line: None)).shape
        vocabulary, context, spec = vocabulary or shape.vocabulary, context or shape.context, spec.model
        classes = shape.classes
    try:
        return build_model(spec, vocabulary=vocabulary or 256, context=context or 128, classes=classes, seeds=seeds)
    except ValidationError as error:
        (path, message), *_ = describe(error)
        raise SpaceError(f"`{'.'.join(map(str, path))}`: {message}", where="spec") from None

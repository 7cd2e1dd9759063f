"""The words of the command line as functions: plan, run, build."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from torch import nn

from ablate.engine.choose import EngineOptions, make_engine
from ablate.engine.environment import describe_environment
from ablate.engine.observer import Observer
from ablate.engine.packing import Packing
from ablate.engine.plan import Plan, Planner, make_plan
from ablate.engine.study import StudyResult, run_study
from ablate.errors import EngineError
from ablate.model.build import build_model
from ablate.spec.model import ModelSpec
from ablate.spec.reading import load_space
from ablate.spec.resources import ResourcesSpec
from ablate.spec.space import SpaceSpec
from ablate.spec.variant import VariantSpec
from ablate.store import Store, open_store
from ablate.tasks.cache import default_cache

DEFAULT_STORE = Path("studies/ablate.db")


def plan(space: SpaceSpec | str | Path, *, cache: Path | None = None) -> Plan:
    """Every variant and trial that a space asks for, with their cost; trains nothing, but prepares the data.

    Args:
        space: What to find out, or its file or name.
        cache: Folder of prepared data; None: the user's cache folder.

    Raises:
        AblateError: The baseline makes no model, or the data cannot be prepared.
    """
    return make_plan(Planner(_read(space), cache or default_cache(), lambda line: None))


def run(
    space: SpaceSpec | str | Path,
    *,
    store: Store | str | Path = DEFAULT_STORE,
    device: str = "auto",
    workers: int | None = None,
    threads: int = 1,
    cache: Path | None = None,
    plugins: tuple[str, ...] = (),
    observer: Observer | None = None,
    engine: str = "local",
    address: str | None = None,
    resources: ResourcesSpec | None = None,
    pack: int | None = None,
) -> StudyResult:
    """Run a space to its end, or go on with it; finished trials of the store are not trained again.

    Args:
        space: What to find out, or its file or name.
        store: An open store, or where it is.
        device: `auto`, `cpu` or `cuda`.
        workers: Processes; None: one for each core, or for each GPU.
        threads: Threads of each process.
        cache: Folder of prepared data; None: the user's cache folder.
        plugins: Files that define further kinds, for the workers.
        observer: Is told what happens.
        engine: `local`, or `ray` for a cluster.
        address: Of the cluster: `auto`, HOST:PORT or `local`; None: $RAY_ADDRESS if it is set, else `local`.
        resources: What each job gets on a cluster, in place of the space's `resources`.
        pack: The most trials of one structure that are trained together as one program; None: as many as pay.

    Raises:
        AblateError: The space, its data, the device, the engine or the store cannot be used.
    """
    for name, number in (("workers", workers), ("threads", threads), ("pack", pack)):
        if number is not None and number < 1:
            raise EngineError("so few there cannot be", where=name, expected="at least 1", got=str(number))
    space = _read(space)
    folder = cache or default_cache()
    observer = observer or Observer()
    options = EngineOptions(
        folder, device, workers, threads, plugins, address, resources or space.resources, space.name, pack
    )
    # The engine first: a mistake in what was asked of it leaves no empty store behind.
    with (
        make_engine(engine, options) as trainer,
        nullcontext(store) if isinstance(store, Store) else open_store(store) as opened,
    ):
        observer.say(f"store: {opened.where}")
        planner = Planner(space, folder, observer.say)
        environment, packing = describe_environment(trainer.device), Packing(pack, trainer.device)
        return run_study(planner, opened, trainer, environment, observer, packing)


def _read(space: SpaceSpec | str | Path) -> SpaceSpec:
    return space if isinstance(space, SpaceSpec) else load_space(space)


def build(
    spec: ModelSpec | VariantSpec,
    *,
    vocabulary: int | None = None,
    context: int | None = None,
    seeds: Sequence[int] = (0,),
    cache: Path | None = None,
) -> nn.Module:
    """The module of a spec: token ids [K, B, T] to logits [K, B, T, V].

    Args:
        spec: A model, or a variant, whose task then says the vocabulary and the context.
        vocabulary: Number of token ids V; for a bare model 256 unless given.
        context: The longest input in tokens; for a bare model 128 unless given.
        seeds: Of the initial values, one for each member of the pack; their number is K.
        cache: Folder of prepared data, for a variant.

    Raises:
        AblateError: The data of a variant's task cannot be prepared.
    """
    if isinstance(spec, VariantSpec):
        folder = cache or default_cache()
        shape = spec.task.open(folder, spec.task.prepare(folder, lambda line: None)).shape
        vocabulary, context, spec = vocabulary or shape.vocabulary, context or shape.context, spec.model
    return build_model(spec, vocabulary=vocabulary or 256, context=context or 128, seeds=seeds)

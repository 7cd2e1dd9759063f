"""The options of a run: what they change in a space, the messages for wrong ones, and what a further option takes."""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest
import typer

import ablate
from ablate import extras
from ablate.api import make_engine
from ablate.cli.app import app
from ablate.errors import ArgumentError, EngineError, MissingPackageError
from ablate.execution import options as options_module
from ablate.execution.local import LocalEngine, _check_options
from ablate.execution.options import _OPTIONS_OF_RESOURCES, RunOptions, WorkerSettings, pack_size, shown_options
from ablate.spec.space_fields import CheckpointInterval, ResourcesSpec


def test_options_override_the_space() -> None:
    space = ResourcesSpec(cpus=2, gpus=0.5, custom={"disk": 1, "net": 2}, labels={"zone": "a"})
    assert RunOptions().resources_of_job(space) == space
    given = RunOptions(resource=["disk=3"], label=["arch=x"], cpus=4.0, checkpoint_dir="s3://b", checkpoint_every="100")
    assert given.resources_of_job(space) == ResourcesSpec(
        cpus=4,
        gpus=0.5,
        custom={"disk": 3, "net": 2},
        labels={"zone": "a", "arch": "x"},
        checkpoint_dir="s3://b",
        checkpoint_every=100,
    )


@pytest.mark.parametrize(
    ("option", "value", "field", "found"),
    [
        ("cpus", 3.0, "cpus", 3.0),
        ("gpus", 0.5, "gpus", 0.5),
        ("memory", 7.0, "memory", 7.0),
        ("resource", ["a=1", "b=2=3"], "custom", None),
        ("resource", ["a=1", "b=2"], "custom", {"a": 1.0, "b": 2.0}),
        ("label", ["a=b=c"], "labels", {"a": "b=c"}),
        ("checkpoint_every", "40", "checkpoint_every", 40),
        ("checkpoint_dir", "there", "checkpoint_dir", "there"),
    ],
)
def test_each_option_changes_one_resource(option: str, value: Any, field: str, found: Any) -> None:
    if found is None:
        with pytest.raises(EngineError, match=f"--{option}"):
            RunOptions(**{option: value}).resources_of_job()
        return
    for base in (ResourcesSpec(), ResourcesSpec(cpus=9, memory=9, checkpoint_every=9)):
        given = RunOptions(**{option: value})
        assert given.resources_of_job(base) == base.model_copy(update={field: found})
        assert RunOptions(**{option: value}, resources=base).resources_of_job(ResourcesSpec(gpus=2)) == (
            base.model_copy(update={field: found})
        ), "they take the place of those of the space"
    assert RunOptions(checkpoint_every="40").checkpoint_interval == CheckpointInterval(steps=40, seconds=0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"resource": ["disk"]}, "--resource: .*expected NAME=AMOUNT; got 'disk'"),
        ({"resource": ["disk=much"]}, "--resource: "),
        ({"label": ["=a"]}, "--label: .*KEY=VALUE"),
        ({"cpus": -1.0}, "--cpus: "),
        ({"gpus": 1.5}, "--gpus: .*whole GPUs"),
        ({"checkpoint_every": "soon"}, "--checkpoint-every: .*`10 min`"),
        ({"checkpoint_every": "0 min"}, "--checkpoint-every: "),
    ],
)
def test_impossible_values_are_reported_with_their_option(options: dict[str, Any], said: str) -> None:
    with pytest.raises(EngineError, match=said):
        RunOptions(**options).resources_of_job()


@pytest.mark.parametrize("there", [0, 1, 2])
@pytest.mark.parametrize("gpus", [None, 0.0, 1.0, 2.0])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_local_engine_gives_a_trial_as_many_gpus_as_are_there(
    device: str, gpus: float | None, there: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a study on the processor none; a study on a GPU needs one."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: there)
    fits = (gpus or 0) <= there and gpus != 0 if device == "cuda" else not gpus
    with nullcontext() if fits else pytest.raises(EngineError, match="--gpus"):
        _check_options(RunOptions(device=device, gpus=gpus), device)


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"address": "auto"}, "--address"),
        ({"resource": ["disk=1"]}, "--resource"),
        ({"label": ["zone=a"]}, "--label"),
    ],
)
def test_options_for_clusters_need_a_cluster(given: dict[str, Any], option: str, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=f"{option}: the local engine .* needs `--engine ray`"):
        LocalEngine(RunOptions(cache=tmp_path, device="cpu", **given))


def test_every_option_of_a_run_is_one_of_study_and_of_the_function() -> None:
    command = typer.main.get_command(app).commands["study"]  # type: ignore[attr-defined]
    shown = {parameter.name for parameter in command.params}
    assert {each.name for each in fields(RunOptions)} - shown == {"resources"}
    assert {each.name for each in fields(RunOptions)} <= set(inspect.signature(ablate.run).parameters)


def test_help_says_what_an_option_does_when_it_is_left_out_and_shows_together_what_belongs_together() -> None:
    """A run that nothing stops needs no words for it."""
    usual = {each.name: each.default for each in fields(RunOptions)}
    for name, _, shown in shown_options():
        assert ("show_default" in shown) == (usual[name] is None and not shown["help"].startswith("Stop")), name
    of_a_job = {"engine", "address", *_OPTIONS_OF_RESOURCES.values()}
    assert {name for name, _, shown in shown_options() if "rich_help_panel" in shown} == of_a_job


def test_the_command_line_takes_numbers_from_their_least() -> None:
    command = typer.main.get_command(app).commands["study"]  # type: ignore[attr-defined]
    for option, least in {"workers": 1, "threads": 1, "pack": 1, "max-trials": 1, "max-seconds": 0}.items():
        given = command.make_context("study", [f"--{option}", str(least), "space.yaml"])
        assert given.params[option.replace("-", "_")] == least
        with pytest.raises(EngineError if option == "pack" else typer.BadParameter):
            command.make_context("study", [f"--{option}", str(least - 1), "space.yaml"])


def test_a_further_option_is_a_field_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line and `ablate.run` take a field that only `RunOptions` knows."""

    @dataclass(frozen=True, kw_only=True)
    class More(RunOptions):
        rehearse: bool = field(default=False, metadata={"option": ((), {"help": "Do not train."})})

    def study(**options: Any) -> int:
        return int(More(**options).rehearse)

    monkeypatch.setattr(options_module, "RunOptions", More)
    monkeypatch.setattr("ablate.cli.options.RunOptions", More)
    from ablate.cli.options import with_run_options

    alone = typer.Typer()
    alone.command()(with_run_options(study))
    command = typer.main.get_command(alone)
    assert [command.main(words, standalone_mode=False) for words in (["--rehearse"], [])] == [1, 0]


@pytest.mark.parametrize(
    ("text", "size"),
    [("auto", None), ("1", 1), ("12", 12), ("0", ...), ("-1", ...), ("", ...), ("2.0", ...), ("²", ...), ("٣", ...)],
)
def test_a_pack_has_a_size_from_one_or_that_which_fits(text: str, size: Any) -> None:
    if size is ...:
        with pytest.raises(EngineError, match=r"--pack: .*auto, or a number"):
            pack_size(text)
    else:
        assert pack_size(text) == size


@pytest.mark.parametrize("name", ["workers", "threads", "pack", "max_trials"])
def test_counts_begin_at_one(name: str) -> None:
    assert getattr(RunOptions(**{name: 1}), name) == 1
    with pytest.raises(EngineError, match=f"{name}: this number is too small; expected at least 1; got 0"):
        RunOptions(**{name: 0})


@pytest.mark.parametrize("plugins", [None, "a.py", Path("a.py"), ["a.py", Path("b.py")], (Path("a.py"),), []])
def test_plugins_are_a_file_or_several(plugins: Any, tmp_path: Path) -> None:
    given = RunOptions(plugins=plugins, cache=str(tmp_path), resource=None)  # type: ignore[arg-type]
    assert given.plugins == [str(one) for one in ([plugins] if isinstance(plugins, str | Path) else plugins or ())]
    assert (given.cache, given.folder, given.resource) == (tmp_path, tmp_path, [])
    assert WorkerSettings(given).devices == ("cpu",)


@pytest.mark.parametrize(
    "options",
    [
        *({name: 2.5} for name in ("workers", "threads", "pack", "max_trials", "device", "engine", "cache")),
        {"plugins": [3]},
        *({name: "tensorboard:x"} for name in ("log_to", "resource", "label")),
    ],
)
def test_an_option_of_the_wrong_type_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(options))):
        RunOptions(**options)


def test_an_unknown_engine(tmp_path: Any) -> None:
    with pytest.raises(EngineError, match=r"--engine: there is no such engine; expected local or ray; got 'slurm'"):
        make_engine(RunOptions(engine="slurm", cache=tmp_path))


def test_without_ray_the_option_says_how_to_install_it(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "ray" else found(name))
    with pytest.raises(MissingPackageError, match=r"not installed.*pip install 'ablate-blocks\[ray\]'"):
        make_engine(RunOptions(engine="ray", cache=tmp_path))


def test_checkpoints_on_a_cluster_without_storage(tmp_path: Any) -> None:
    pytest.importorskip("ray")
    with pytest.raises(EngineError, match="--checkpoint-dir: checkpoints need storage that outlives the machine"):
        make_engine(RunOptions(engine="ray", cache=tmp_path, resources=ResourcesSpec(checkpoint_every=5)))


def test_an_unreachable_cluster(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:

    def init(**options: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance.\nMore.")

    monkeypatch.setattr("ray.init", init)
    with pytest.raises(
        EngineError, match=r"--address auto: .*got Could not find.* instance\. Start .*ray start --head"
    ):
        make_engine(RunOptions(engine="ray", cache=tmp_path, address="auto"))
    with pytest.raises(EngineError, match="has to run on a machine of the cluster"):
        make_engine(RunOptions(engine="ray", cache=tmp_path, address="ray://head:10001"))
    with pytest.raises(EngineError, match=r"--address 127.0.0.1:1: .*got .*refused"):
        make_engine(RunOptions(engine="ray", cache=tmp_path, address="127.0.0.1:1"))
    with pytest.raises(EngineError, match=r"--address somewhere: .*got invalid literal"):
        make_engine(RunOptions(engine="ray", cache=tmp_path, address="somewhere"))

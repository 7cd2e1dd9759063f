"""The options of a run, each defined once: the command line, `ablate.run`, the engines and their workers share them.

A new option is a field here, with its help, and the code that uses it.
"""
# ruff: noqa: RUF009 - `_option` makes a field of a dataclass

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, get_type_hints

from ablate.errors import EngineError, check_argument, check_texts
from ablate.locations import cache_folder

if TYPE_CHECKING:
    from ablate.spec.space_fields import CheckpointInterval, ResourcesSpec

P = ParamSpec("P")
R = TypeVar("R")
_CLUSTER, _RESOURCES = "Cluster", "Resources"
_OPTIONS_OF_RESOURCES = {
    "cpus": "cpus",
    "gpus": "gpus",
    "memory": "memory",
    "custom": "resource",
    "labels": "label",
    "checkpoint_every": "checkpoint_every",
    "checkpoint_dir": "checkpoint_dir",
}
"""Field of `resources` in a space to the field here that changes it."""


def pack_size(text: str) -> int | None:
    """The most trials of a pack; None for `auto`.

    Raises:
        EngineError: It is neither `auto` nor a number from 1.
    """
    if text == "auto":
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise EngineError(
            "this is not a size of a pack",
            where="--pack",
            expected="auto, or a number of trials from 1",
            got=repr(text),
        )
    return int(text)


def _option(default: Any, meaning: str, *names: str, **shown: Any) -> Any:
    """A field that is an option of `ablate study` too.

    Args:
        default: The default; a type makes a new one for each object.
        names: On the command line; the name of the field unless given.
        shown: Further arguments of `typer.Option`.
    """
    metadata = {"option": (names, {"help": meaning, **shown})}
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How trials are run; it does not change what they find. The options of `ablate study` have the same names.

    `plugins` takes a file or several; `--plugin`, `--resource`, `--label` and `--log-to` are repeatable.
    """

    device: str = _option("auto", "Device: auto, cpu or cuda.", metavar="DEVICE")
    workers: int | None = _option(
        None, "Trials at once, each in a process.", metavar="N", min=1, show_default="one for each core, or each GPU"
    )
    threads: int = _option(1, "Threads of each process.", metavar="N", min=1)
    pack: int | None = _option(
        None,
        "Maximum number of trials trained together as one program; `auto` chooses it.",
        metavar="N|auto",
        show_default="auto",
        parser=pack_size,
    )
    cache: Path | None = _option(
        None, "Folder for prepared data.", metavar="DIR", show_default="$ABLATE_CACHE, or the user's cache"
    )
    plugins: list[str] = _option(
        list, "Python file with your own components; repeatable.", "--plugin", metavar="FILE.py"
    )
    engine: str = _option(
        "local", "Where to run: local, or ray for a cluster.", metavar="ENGINE", rich_help_panel=_CLUSTER
    )
    address: str | None = _option(
        None,
        "Ray cluster to use: auto, HOST:PORT, or local (this machine only).",
        metavar="ADDRESS",
        show_default="$RAY_ADDRESS, or local",
        rich_help_panel=_CLUSTER,
    )
    cpus: float | None = _option(
        None, "Cores for each job.", metavar="N", show_default="the space's", rich_help_panel=_RESOURCES
    )
    gpus: float | None = _option(
        None,
        "GPUs, or a fraction of one, for each job.",
        metavar="N",
        show_default="by memory",
        rich_help_panel=_RESOURCES,
    )
    memory: float | None = _option(
        None, "Memory for each job.", metavar="GIB", show_default="as predicted", rich_help_panel=_RESOURCES
    )
    resource: list[str] = _option(
        list, "A custom resource for each job; repeatable.", metavar="NAME=AMOUNT", rich_help_panel=_CLUSTER
    )
    label: list[str] = _option(
        list, "A label that nodes must have; repeatable.", metavar="KEY=VALUE", rich_help_panel=_CLUSTER
    )
    checkpoint_every: str | None = _option(
        None,
        "Steps (500) or minutes (10min) between checkpoints, from which an interrupted trial resumes.",
        metavar="STEPS|MINUTES",
        show_default="none",
        rich_help_panel=_RESOURCES,
    )
    checkpoint_dir: str | None = _option(
        None,
        "Where checkpoints are kept: a folder; on a cluster one that is shared, or a URL.",
        metavar="DIR",
        show_default="beside the store",
        rich_help_panel=_RESOURCES,
    )
    log_to: list[str] = _option(
        list,
        "Copy curves and answer: tensorboard:DIR, wandb:PROJECT or mlflow:URI; repeatable.",
        metavar="TRACKER",
    )
    accept_changed_code: bool = _option(
        False, "Use trials of another version of your components as if nothing changed.", "--accept-changed-code"
    )
    time: bool = _option(False, "After the trials, time each variant in turns with the baseline.", "--time")
    max_trials: int | None = _option(
        None, "Stop when this many trials, or a few more in a pack, have ended.", metavar="N", min=1
    )
    max_seconds: float | None = _option(None, "Stop after this many seconds.", metavar="SECONDS", min=0.0)
    resources: ResourcesSpec | None = None
    """What each job gets instead of the space's `resources`, before `cpus` and its like change single fields."""

    def __post_init__(self) -> None:
        """Check what a caller of `ablate.run` may have got wrong.

        Raises:
            ArgumentError: An option has the wrong type.
            EngineError: A number is below 1.
        """
        for name in ("workers", "threads", "pack", "max_trials"):
            if (number := getattr(self, name)) is not None:
                check_argument(name, number, int, "a whole number of at least 1")
                if number < 1:
                    raise EngineError("this number is too small", where=name, expected="at least 1", got=str(number))
        check_argument("device", self.device, str, "auto, cpu or cuda")
        check_argument("engine", self.engine, str, "local or ray")
        if self.cache is not None:
            check_argument("cache", self.cache, (str, Path), "a folder")
            object.__setattr__(self, "cache", Path(self.cache))
        object.__setattr__(self, "plugins", plugin_files(self.plugins))
        lists = {
            "resource": "a list of NAME=AMOUNT",
            "label": "a list of KEY=VALUE",
            "log_to": "a list of addresses of trackers",
        }
        for name, expected in lists.items():
            object.__setattr__(self, name, check_texts(name, getattr(self, name) or (), expected))

    @property
    def folder(self) -> Path:
        """The folder of prepared data.

        Raises:
            AblateError: This user has none.
        """
        return self.cache or cache_folder()

    def resources_of_job(self, space: ResourcesSpec | None = None) -> ResourcesSpec:
        """The resources of each job.

        Args:
            space: What the space asks for.

        Raises:
            EngineError: An option is invalid.
        """
        from pydantic import ValidationError

        from ablate.spec.sentences import describe
        from ablate.spec.space_fields import ResourcesSpec

        base = self.resources or space or ResourcesSpec()
        given = {name: getattr(self, option) for name, option in _OPTIONS_OF_RESOURCES.items()}
        changes = {name: value for name, value in given.items() if value not in (None, [])}
        changes["custom"] = {**base.custom, **_pairs("--resource", "NAME=AMOUNT", self.resource)}
        changes["labels"] = {**base.labels, **_pairs("--label", "KEY=VALUE", self.label)}
        try:
            return ResourcesSpec.model_validate({**base.model_dump(), **changes})
        except ValidationError as error:
            (path, problem), *_ = describe(error)
            option = _OPTIONS_OF_RESOURCES[str(path[0])].replace("_", "-")
            raise EngineError(problem, where=f"--{option}") from None

    @property
    def checkpoint_interval(self) -> CheckpointInterval:
        """When jobs write checkpoints."""
        return self.resources_of_job().checkpoint_interval


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker of the local engine reads first from its pipe, and each further process of a trial from its own.

    Attributes:
        devices: Of the processes of each trial; the first one is that of the worker itself.
        cores: Indices of the cores to which the worker is pinned; all cores if it is empty.
        checkpoints: The folder of the study's checkpoints.
    """

    options: RunOptions
    devices: tuple[str, ...] = ("cpu",)
    cores: tuple[int, ...] = ()
    checkpoints: Path = Path("checkpoints")


def shown_options() -> Iterable[tuple[str, tuple[str, ...], dict[str, Any]]]:
    """Each field that is an option of the command line: its name, its names there, and arguments of `typer.Option`."""
    return [(known.name, *known.metadata["option"]) for known in fields(RunOptions) if "option" in known.metadata]


def show_in_signature(function: Callable[P, R], annotations: Mapping[str, Any] | None = None) -> Callable[P, R]:
    """Show fields of `RunOptions` in the signature of a function that takes them as `**options`.

    Args:
        annotations: The fields to show, with their annotations; None: all, with their types.
    """
    own = signature(function, eval_str=annotations is not None)
    if annotations is None:
        from ablate.spec.space_fields import ResourcesSpec

        annotations = get_type_hints(RunOptions, localns={"ResourcesSpec": ResourcesSpec})
    parameters = [given for given in own.parameters.values() if given.kind is not Parameter.VAR_KEYWORD]
    for option in fields(RunOptions):
        if option.name in annotations:
            default = None if option.default is MISSING else option.default
            annotation = annotations[option.name]
            parameters.append(Parameter(option.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation))
    return show_parameters(function, parameters)


def show_parameters(function: Callable[P, R], parameters: Sequence[Parameter]) -> Callable[P, R]:
    """Show these parameters in the signature of a function, which takes some of them as `**options`."""
    changed: Any = function
    changed.__signature__ = signature(function).replace(parameters=parameters)
    changed.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


def plugin_files(plugins: str | Path | Sequence[str | Path] | None) -> list[str]:
    """The files of one plugin or of several.

    Raises:
        ArgumentError: It is neither a file nor a list of files.
    """
    if plugins is None or isinstance(plugins, str | Path):
        return [] if plugins is None else [str(plugins)]
    paths = (
        [str(path) if isinstance(path, Path) else path for path in plugins]
        if isinstance(plugins, Iterable)
        else plugins
    )
    return check_texts("plugins", paths, "a file or a list of files")


def _pairs(option: str, form: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not (name and value):
            raise EngineError(
                "a name, an equals sign and a value are needed", where=option, expected=form, got=repr(text)
            )
        pairs[name] = value
    return pairs

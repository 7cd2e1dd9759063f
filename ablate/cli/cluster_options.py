"""Options for the resources of jobs, here or on a cluster, and how they change the `resources` of a space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablate.errors import EngineError

if TYPE_CHECKING:
    from ablate.spec.resources import ResourcesSpec

_PANEL = "Cluster"
_RESOURCES = "Resources"
_RENAMED = {"custom": "resource", "labels": "label"}
"""Field of `resources` to the option that adds to it, where that has another name."""

EngineOption = Annotated[
    str, typer.Option("--engine", help="What trains: local, or ray for a cluster.", rich_help_panel=_PANEL)
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="ADDRESS",
        help="Of the Ray cluster: auto, HOST:PORT, or local for this machine alone.",
        show_default="$RAY_ADDRESS, or local",
        rich_help_panel=_PANEL,
    ),
]
CpusOption = Annotated[
    float | None,
    typer.Option("--cpus", help="Cores for each job.", show_default="the space's", rich_help_panel=_RESOURCES),
]
GpusOption = Annotated[
    float | None,
    typer.Option(
        "--gpus", help="GPUs, or a fraction of one, for each job.", show_default="by memory", rich_help_panel=_RESOURCES
    ),
]
MemoryOption = Annotated[
    float | None,
    typer.Option("--memory", help="GiB for each job.", show_default="as predicted", rich_help_panel=_RESOURCES),
]
ResourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--resource", metavar="NAME=AMOUNT", help="A resource of your own for each job.", rich_help_panel=_PANEL
    ),
]
LabelOption = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="A label that nodes must have.", rich_help_panel=_PANEL),
]
CheckpointOption = Annotated[
    str | None,
    typer.Option(
        "--checkpoint-every",
        metavar="STEPS|MINUTES",
        help="Steps (500) or minutes (10min) between checkpoints, from which an interrupted trial resumes.",
        show_default="none",
        rich_help_panel=_RESOURCES,
    ),
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        "--storage",
        help="Where checkpoints are kept: a folder; on a cluster one that is shared, or a URL.",
        rich_help_panel=_RESOURCES,
    ),
]


def with_options(
    resources: ResourcesSpec, custom: list[str] | None, labels: list[str] | None, **given: float | str | None
) -> ResourcesSpec:
    """The resources of a space, with what was given on the command line in their place.

    Raises:
        EngineError: An option is invalid.
    """
    from pydantic import ValidationError

    from ablate.spec.sentences import describe

    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    changes["custom"] = {**resources.custom, **_pairs("--resource", "NAME=AMOUNT", custom)}
    changes["labels"] = {**resources.labels, **_pairs("--label", "KEY=VALUE", labels)}
    try:
        return type(resources).model_validate({**resources.model_dump(), **changes})
    except ValidationError as error:
        (path, problem), *_ = describe(error)
        raise EngineError(problem, where=_option(str(path[0]))) from None


def refuse_without_cluster(engine: str, **given: object) -> None:
    """Refuse options of a cluster for an engine that has none.

    Raises:
        EngineError: One is given.
    """
    from ablate.execution.choose import ALONE

    for option in (_option(name) for name, value in given.items() if value not in (None, [])):
        if engine in ALONE:
            raise EngineError(
                f"the {engine} engine trains on this machine alone, and this needs `--engine ray`",
                where=option,
                remedy=f"Add `--engine ray`, or leave `{option}` out.",
            )


def _option(name: str) -> str:
    """The option that gives this field of `resources`."""
    return f"--{_RENAMED.get(name, name).replace('_', '-')}"


def _pairs(option: str, form: str, texts: list[str] | None) -> dict[str, str]:
    pairs = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise EngineError("this says too little", where=option, expected=form, got=repr(text))
        pairs[name] = value
    return pairs

"""Arguments, options and exit codes that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from ablate.errors import AblateError
from ablate.execution.options import RunOptions, show_in_signature, shown_options
from ablate.locations import DEFAULT_STORE

STORE_VARIABLE = "ABLATE_STORE"
"""The environment variable that names the store of commands without `--store`."""

# Exit codes besides 0 (fine) and 2 (a mistake of the user).
REFUTED = 1
DIFFERENT = 1
FAILED = 3
INTERRUPTED = 130


def _option_of_a_run(name: str) -> Any:
    """What the command line shows of a field of `RunOptions`, for other commands that take it too."""
    (names, shown), *_ = ((names, shown) for field, names, shown in shown_options() if field == name)
    return typer.Option(*(names or (f"--{name.replace('_', '-')}",)), **shown)


def stored_studies(context: typer.Context, incomplete: str) -> list[str]:
    """The studies of the store, for the completion of a shell."""
    from ablate.store import open_store

    try:
        with open_store(context.params.get("store") or DEFAULT_STORE, create=False) as opened:
            return [study.name for study in opened.studies()]
    except AblateError:
        return []


def _ready_spaces(incomplete: str) -> list[str]:
    """The space files here and the ready spaces, for the completion of a shell."""
    from ablate.spec.named import shipped_spaces

    shipped = [file.stem for file in sorted(shipped_spaces().glob("*.yaml"))]
    return [*map(str, sorted(Path().glob("*.yaml"))), *shipped]


SpaceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SPACE",
        help="A space file, or the name of a ready space such as simplify_block.",
        autocompletion=_ready_spaces,
    ),
]
StudyArgument = Annotated[
    str,
    typer.Argument(metavar="STUDY", help="A study; `ablate list` shows them.", autocompletion=stored_studies),
]
TrialArgument = Annotated[
    str,
    typer.Argument(
        metavar="TRIAL", help="The key of a trial, or its first characters; `ablate show STUDY --trials` lists them."
    ),
]
SideArgument = Annotated[
    str, typer.Argument(metavar="SIDE", help="STUDY/VARIANT, the key of a trial, or a space file (a path).")
]
StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="STORE",
        help="Where studies are kept: a file, or an SQLAlchemy URL.",
        envvar=STORE_VARIABLE,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
PluginOption = Annotated[list[str] | None, _option_of_a_run("plugins")]
CacheOption = Annotated[Path | None, _option_of_a_run("cache")]
DeviceOption = Annotated[str, _option_of_a_run("device")]
ThreadsOption = Annotated[int, _option_of_a_run("threads")]
DataOption = Annotated[
    str | None,
    typer.Option("--data", metavar="SOURCE", help="Data instead of the space's: file:PATH, hub:NAME or builtin:NAME."),
]
MovedDataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="SOURCE",
        help="Where its data is now, such as file:PATH; it must have the stored fingerprint.",
    ),
]
StoredOption = Annotated[
    bool, typer.Option("--stored", help="SPACE is the name of a stored study: what `ablate resume` would train.")
]
SeedsOption = Annotated[
    str | None,
    typer.Option(
        "--seeds",
        metavar="N|START:MAX",
        help="Seeds instead of the design's; START:MAX adds seeds to undecided comparisons.",
    ),
]
DesignOption = Annotated[
    str | None,
    typer.Option(
        "--design",
        metavar="KIND",
        help="Use another design, as a study NAME_KIND that shares trials with the first.",
    ),
]
RungOption = Annotated[
    float | None,
    typer.Option("--rung", metavar="VALUE", help="One more rung of a ladder, above those that it has."),
]
LongerOption = Annotated[
    int | None,
    typer.Option("--longer", metavar="TIMES", min=2, help="Train TIMES as long, as a study NAME_xTIMES of its own."),
]
AcceptCodeOption = Annotated[bool, _option_of_a_run("accept_changed_code")]


def with_run_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command an option for each option of a run, which it takes as `**options`."""
    hints = get_type_hints(RunOptions, localns={"ResourcesSpec": object})  # its class is slow to make, no option's type
    return show_in_signature(
        command, {name: Annotated[hints[name], typer.Option(*names, **shown)] for name, names, shown in shown_options()}
    )


def store_flag(store: str) -> list[str]:
    """What to add to a suggested command so that it reads the same store."""
    usual = os.environ.get(STORE_VARIABLE) or DEFAULT_STORE
    return [] if store == usual else ["--store", store]


def picture_file(option: str, file: Path, endings: tuple[str, ...] = (".svg",)) -> Path:
    """The file, if a picture can be written there; asked before anything is measured or drawn.

    Args:
        option: The option that names it, for messages.
        endings: Of the kinds of picture that can be drawn.

    Raises:
        AblateError: It is of another kind, or its folder is not there.
    """
    where = f"{option} {file}"
    if file.suffix.lower() not in endings:
        raise AblateError(
            "pictures of this kind cannot be drawn",
            where=where,
            expected=", ".join(endings),
            got=file.suffix or "no ending",
            remedy=f"Write `{option} {file.with_suffix(endings[0])}`.",
        )
    if not file.parent.is_dir():
        raise AblateError("there is no such folder", where=where, remedy=f"Make {file.parent} first.")
    return file

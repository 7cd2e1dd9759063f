"""Arguments, options and exit codes that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from ablate.errors import AblateError
from ablate.execution.options import RunOptions, show_in_signature, shown_options
from ablate.locations import DEFAULT_STORE

# Exit codes besides 0 (fine) and 2 (a mistake of the user).
REFUTED = 1
DIFFERENT = 1
FAILED = 3
INTERRUPTED = 130


def _option_of_a_run(name: str) -> Any:
    """What the command line shows of a field of `RunOptions`, for other commands that take it too."""
    (names, shown), *_ = ((names, shown) for field, names, shown in shown_options() if field == name)
    return typer.Option(*(names or (f"--{name.replace('_', '-')}",)), **shown)


SpaceArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="A space file, or the name of a ready space such as simplify_block.")
]
StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="Name of a study; `ablate list` shows them.")]
TrialArgument = Annotated[str, typer.Argument(metavar="TRIAL", help="The key of a trial, or its first characters.")]
SideArgument = Annotated[
    str, typer.Argument(help="STUDY/VARIANT, the beginning of a trial's key, or a space file (a path).")
]
StoreOption = Annotated[str, typer.Option("--store", help="Where studies are kept: a file, or an SQLAlchemy URL.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a program.")]
PluginOption = Annotated[list[str] | None, _option_of_a_run("plugins")]
CacheOption = Annotated[Path | None, _option_of_a_run("cache")]
DeviceOption = Annotated[str, _option_of_a_run("device")]
ThreadsOption = Annotated[int, _option_of_a_run("threads")]
DataOption = Annotated[
    str | None,
    typer.Option("--data", metavar="SOURCE", help="Data in place of the space's: file:PATH, hub:NAME or builtin:NAME."),
]
StoredOption = Annotated[
    bool,
    typer.Option("--stored", help="FILE is the name of a study in the store; it continues with its stored space."),
]
SeedsOption = Annotated[
    str | None,
    typer.Option(
        "--seeds",
        metavar="N|START:MAX",
        help="Seeds in place of the design's; START:MAX adds seeds to undecided comparisons.",
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
AcceptCodeOption = Annotated[bool, _option_of_a_run("accept_changed_code")]


def with_run_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command an option for each option of a run, which it takes as `**options`."""
    hints = get_type_hints(RunOptions)
    return show_in_signature(
        command, {name: Annotated[hints[name], typer.Option(*names, **shown)] for name, names, shown in shown_options()}
    )


def store_flag(store: str) -> list[str]:
    """What to add to a suggested command so that it reads the same store."""
    return [] if store == DEFAULT_STORE else ["--store", store]


def picture_file(option: str, file: Path, endings: tuple[str, ...] = (".svg",)) -> Path:
    """The file, if a picture can be written there; asked before anything is measured or drawn.

    Args:
        option: The option that names it, for messages.
        file: The path of the picture.
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

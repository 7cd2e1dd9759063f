"""Arguments, options and exit codes that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ablate.errors import AblateError, EngineError

# Exit codes besides 0 (fine) and 2 (a mistake of the user).
REFUTED = 1
DIFFERENT = 1
FAILED = 3
INTERRUPTED = 130

DEFAULT_STORE = "studies/ablate.db"

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
PluginOption = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="FILE.py", help="A file with kinds of your own; may be given several times."),
]
CacheOption = Annotated[
    Path | None,
    typer.Option("--cache", help="Folder of prepared data.", show_default="$ABLATE_CACHE, or the user's cache"),
]
DeviceOption = Annotated[str, typer.Option("--device", help="Where to train: auto, cpu or cuda.")]
WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Processes that train.", show_default="one for each core, or each GPU"),
]
ThreadsOption = Annotated[int, typer.Option("--threads", min=1, help="Threads of each process.")]
TimeOption = Annotated[
    bool,
    typer.Option("--time", help="After the trials, time each variant in turns with the baseline."),
]
PackOption = Annotated[
    str,
    typer.Option(
        "--pack",
        metavar="N|auto",
        help="Most trials trained as one program; auto: as many as pay off and fit.",
    ),
]
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
AcceptCodeOption = Annotated[
    bool,
    typer.Option("--accept-changed-code", help="Use trials of another version of your kinds as if nothing changed."),
]
LogToOption = Annotated[
    list[str] | None,
    typer.Option(
        "--log-to",
        metavar="TRACKER",
        help="Copy curves and answer: tensorboard:DIR, wandb:PROJECT or mlflow:URI; may be given several times.",
    ),
]


def pack_size(text: str) -> int | None:
    """The most trials of a pack; None for `auto`.

    Raises:
        AblateError: It is neither `auto` nor a number from 1.
    """
    if text == "auto":
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise EngineError(
            "this is no size of a pack", where="--pack", expected="auto, or a number of trials from 1", got=repr(text)
        )
    return int(text)


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
        AblateError: It is no such picture, or its folder is not there.
    """
    where = f"{option} {file}"
    if file.suffix.lower() not in endings:
        raise AblateError(
            "this is no kind of picture that can be drawn",
            where=where,
            expected=", ".join(endings),
            got=file.suffix or "no ending",
            remedy=f"Write `{option} {file.with_suffix(endings[0])}`.",
        )
    if not file.parent.is_dir():
        raise AblateError("there is no such folder", where=where, remedy=f"Make {file.parent} first.")
    return file

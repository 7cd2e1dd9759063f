"""Arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ablate.errors import EngineError

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
PackOption = Annotated[
    str,
    typer.Option("--pack", metavar="N|auto", help="Most trials trained as one program; auto: as many as pay and fit."),
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", metavar="SOURCE", help="Data in place of the space's: file:PATH, hub:NAME or builtin:NAME."),
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

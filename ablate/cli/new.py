"""`ablate new`: write a commented space to start from. Starting points are the files of `spaces/starts/`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from ruamel.yaml import YAML

from ablate.cli.options import JsonOption
from ablate.command_line import command
from ablate.errors import ArgumentError, SpaceError
from ablate.render.terminal.console import make_console, print_json, print_next_steps
from ablate.spec.annotations import STUDY_NAME
from ablate.spec.named import shipped_spaces

DEFAULT = "needed"
"""The starting point of a space unless another is named."""


def new(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the new space; NAME.yaml is written here.")
    ] = None,
    like: Annotated[str, typer.Option(metavar="START", help="Starting point, as `--list` names them.")] = DEFAULT,
    list_: Annotated[bool, typer.Option("--list", help="List the starting points by their question.")] = False,
    json_: JsonOption = False,
) -> None:
    """Write a commented space to start from."""
    console = make_console()
    if list_:
        questions = {start: file.read_text(encoding="utf-8")[2:].partition("\n")[0] for start, file in starts().items()}
        if json_:
            print_json({"starts": questions})
            return
        table = Table.grid(padding=(0, 2))
        for start, question in questions.items():
            table.add_row(start, question)
        console.print(table)
        print_next_steps(
            console, "\nTake one:", {command("new", "my_question", "--like", DEFAULT): "a space of your own"}
        )
        return
    if name is None:
        raise ArgumentError("this is missing", where="NAME", remedy="Name the new space, or use `--list`.")
    path = str(write_space(name, Path(), like))
    if json_:
        print_json({"space": path}, indent=None)
        return
    steps = {
        command("plan", path): "what it would train, and how long that takes",
        command("study", path): "train it and see the answer",
    }
    print_next_steps(console, f"Wrote {path}. Change it to your question, then:", steps)


def starts() -> dict[str, Path]:
    """The starting points by name, the default first."""
    files = sorted((shipped_spaces() / "starts").glob("*.yaml"), key=lambda file: (file.stem != DEFAULT, file.stem))
    return {file.stem: file for file in files}


def write_space(name: str, folder: Path, like: str = DEFAULT) -> Path:
    """Write `NAME.yaml` into a folder and return its path; an existing file is left alone.

    Raises:
        ArgumentError: There is no such starting point.
        SpaceError: The name is not a name for a study, the file exists, or the folder cannot be written to.
    """
    stem, known = name.removesuffix(".yaml"), starts()
    if like not in known:
        raise ArgumentError("there is no such starting point", where="--like", expected=", ".join(known), got=like)
    if not STUDY_NAME.fits(stem):
        raise SpaceError(
            f"this is not a name for a space: {STUDY_NAME.rule}",
            where=name,
            remedy="Choose such a name; the file is written into the working folder.",
        )
    path = folder / f"{stem}.yaml"
    text = re.sub(
        r"^name: .*$", lambda _: f"name: {_in_yaml(stem)}", known[like].read_text(encoding="utf-8"), flags=re.M
    )
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SpaceError("this file exists", where=str(path), remedy="Choose another name.") from None
    except OSError as error:
        raise SpaceError(f"this cannot be written ({error.strerror})", where=str(path)) from None
    return path


def _in_yaml(name: str) -> str:
    """A name as YAML reads it back: in quotes where it would be read as something else (`null`, `1e3`)."""
    return name if YAML(typ="safe", pure=True).load(name) == name else f'"{name}"'

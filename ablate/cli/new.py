"""`ablate new`: write a commented space to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.options import JsonOption
from ablate.command_line import command
from ablate.render.terminal.console import make_console, print_json


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new space; NAME.yaml is written here.")],
    json_: JsonOption = False,
) -> None:
    """Write a commented space to start from."""
    from ablate.render.terminal.next_steps import print_next_steps
    from ablate.render.terminal.template import write_template

    path = str(write_template(name, Path()))
    if json_:
        print_json({"space": path}, indent=None)
        return
    steps = {
        command("plan", path): "what it would train, and how long that takes",
        command("study", path): "train it and see the answer",
    }
    print_next_steps(make_console(), f"Wrote {path}. Change it to your question, then:", steps)

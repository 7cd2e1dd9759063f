"""`ablate import`: a model of `transformers` as a model file, or as text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from ablate.cli.options import DIFFERENT, JsonOption
from ablate.errors import AblateError
from ablate.render.terminal.console import make_console, print_json, say


def import_(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with config.json and safetensors files.")],
    out: Annotated[
        Path | None, typer.Option(metavar="MODEL.yaml", help="Write a model file here [default: print it].")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check/--no-check", help="Compare logits with those of transformers on random texts."),
    ] = True,
    config_only: Annotated[
        bool, typer.Option("--config-only", help="Read the settings alone: the model starts from random weights.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Read a Hugging Face model: its settings as a model of a space, its weights under our names.

    The logits are compared with those of transformers; the exit code is 1 if they differ by more than rounding.
    """
    if out is not None and out.exists():
        raise AblateError("this file already exists", where=f"--out {out}", remedy="Name another one.")
    if out is not None and not out.parent.is_dir():
        raise AblateError("its folder does not exist", where=f"--out {out}", remedy="Create the folder first.")
    from ablate.render.terminal.models import compared_line, imported_json, model_file, summary
    from ablate.trained.hugging_face.check import compare
    from ablate.trained.hugging_face.checkpoint import read_config, read_tensors

    imported = read_config(folder)
    compared = None
    if check and not config_only and not imported.architecture.own:
        compared = compare(folder, imported)
    elif not config_only:
        read_tensors(folder, imported)
    text = model_file(imported, folder.absolute(), weights=not config_only)
    if out is not None:
        out.write_text(text, encoding="utf-8")
    if json_:
        said: dict[str, Any] = {"compared": compared is not None, "same": None, "max_difference": None}
        if compared is not None:
            finite = compared.difference if math.isfinite(compared.difference) else None
            said |= {"same": compared.same, "max_difference": finite, "bound": compared.bound}
        print_json({**imported_json(imported), "space": None if out is None else str(out), **said})
    else:
        console = make_console(stderr=out is None)
        if out is None:
            print(text, end="")
        else:
            say(console, f"{summary(imported)}. Wrote {out}.")
        say(console, compared_line(imported, compared, weights=not config_only))
    if compared is not None and not compared.same:
        raise typer.Exit(DIFFERENT)

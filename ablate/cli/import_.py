"""`ablate import`: a model of `transformers` as the model section of a space."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.options import DIFFERENT, JsonOption
from ablate.errors import AblateError
from ablate.render.terminal.console import make_console, print_json, say

TOLERANCE = 1e-4
"""The largest difference of logits in single precision that `--check` lets pass."""


def import_(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with config.json and safetensors files.")],
    out: Annotated[
        Path | None, typer.Option(metavar="SPACE.yaml", help="Write the section here [default: print it].")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare logits with those of transformers on random tokens.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Read a Hugging Face model: its settings as the model section of a space, its weights under our names."""
    if out is not None and out.exists():
        raise AblateError("this file already exists", where=f"--out {out}", remedy="Name another one.")
    if out is not None and not out.parent.is_dir():
        raise AblateError("its folder does not exist", where=f"--out {out}", remedy="Create the folder first.")
    from ablate.render.terminal.imported import imported_json, section, summary
    from ablate.trained.hugging_face.check import largest_difference
    from ablate.trained.hugging_face.checkpoint import read_config, read_tensors

    imported = read_config(folder)
    tensors = read_tensors(folder, imported)
    difference = largest_difference(folder, imported, tensors) if check else None
    text = section(imported, folder.absolute())
    if out is not None:
        out.write_text(text, encoding="utf-8")
    if json_:
        compared = {} if difference is None else {"max_difference": difference}
        print_json({**imported_json(imported), "space": None if out is None else str(out), **compared})
    else:
        console = make_console()
        if out is None:
            print(text, end="")
        else:
            say(console, f"{summary(imported)}. Wrote {out}.")
        if difference is not None:
            say(console, f"Logits differ from those of transformers by at most {difference:.2g}.")
    if difference is not None and not difference <= TOLERANCE:
        raise typer.Exit(DIFFERENT)

"""`ablate draw`: a block as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.loading import load_plugins
from ablate.cli.options import JsonOption, PluginOption, picture_file
from ablate.render.terminal.console import make_console, print_json, say


def draw(
    block: Annotated[str, typer.Argument(metavar="BLOCK", help="A named block or model, or a mixer kind.")],
    versus: Annotated[str | None, typer.Option(metavar="OTHER", help="The block to compare it with.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Write a picture instead.")] = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Draw a block, or the main one of a model: sub-layers, norms, skips, gains; with --versus, what was changed."""
    picture = None if out is None else picture_file("--out", out)
    load_plugins(plugin)
    from ablate.render.drawing import compare, layout, to_svg, to_text
    from ablate.spec.lookup import find_block

    named = find_block(block)
    if versus is None:
        drawn = layout(named.name, named.block, bool(named.exceptions))
    else:
        other = find_block(versus)
        drawn = compare(other.name, other.block, named.name, named.block)
    if picture is not None:
        from ablate.render.drawing.svg import write_svg

        write_svg(picture, to_svg(drawn))
        print_json({"picture": str(picture)}, indent=None) if json_ else say(make_console(), f"Wrote {picture}.")
        return
    console = make_console()
    if json_:
        print_json(drawn.plain())
    else:
        console.print(to_text(drawn), soft_wrap=True)

"""`ablate bench`: how fast blocks are on this machine, side by side."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.loading import load_plugins
from ablate.cli.options import DeviceOption, JsonOption, PluginOption, picture_file
from ablate.nn.kernels.processor import keep_freed_memory
from ablate.render.terminal.console import make_console, print_json, say


def bench(
    blocks: Annotated[list[str], typer.Argument(metavar="BLOCK...", help="Named blocks, or mixer kinds.")],
    lengths: Annotated[str, typer.Option(help="Tokens L, comma between.")] = "128,512,2048",
    width: Annotated[int, typer.Option(min=1, help="Width d.")] = 128,
    heads: Annotated[int, typer.Option(min=1, help="Heads H.")] = 4,
    batch: Annotated[int, typer.Option(min=1, help="Sequences at once.")] = 4,
    whole: Annotated[bool, typer.Option("--whole", help="The whole block, not its mixer alone.")] = False,
    out: Annotated[Path | None, typer.Option(help="Draw time against L: a file .svg, .png or .pdf.")] = None,
    device: DeviceOption = "auto",
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Time blocks side by side, forward and backward: tokens a second, peak memory, FLOPs, growth with L."""
    # The profiler that measures memory would say when it starts and stops; torch reads these when it is loaded.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    keep_freed_memory()  # as workers do, so that what is timed is what training takes
    load_plugins(plugin)
    from ablate.render.terminal.bench import FIGURES, bench_json, draw_bench, parse_lengths, print_bench
    from ablate.timing.measure import Setting, device_of, measure

    tokens = parse_lengths(lengths)
    figure = None if out is None else picture_file("--out", out, FIGURES)
    setting = Setting(width, heads, batch, device_of(device), whole)
    progress = make_console(stderr=True)
    names = list(dict.fromkeys(blocks))
    measured = measure(names, tokens, setting)
    rows = []
    for row in measured:
        say(progress, f"{row.block} at {row.length:,} tokens", style="dim")
        rows.append(row)
    if json_:
        print_json(bench_json(rows, setting))
    else:
        print_bench(rows, setting, make_console())
    if figure:
        draw_bench(rows, figure)
        say(progress, f"Wrote {figure}")

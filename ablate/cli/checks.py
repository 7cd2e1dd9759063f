"""Checks that train: whether learning rates hold at other sizes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.options import (
    CacheOption,
    DataOption,
    DeviceOption,
    JsonOption,
    PluginOption,
    SpaceArgument,
    ThreadsOption,
    load_space,
    picture_file,
)
from ablate.errors import AblateError
from ablate.extras import require
from ablate.render.terminal.console import make_console, print_json, say


def check_transfer(
    space: SpaceArgument,
    widths: Annotated[
        str, typer.Option("--widths", metavar="N,...", help="Widths; heads stay as wide.", show_default="1, 2, 4 times")
    ] = "",
    depths: Annotated[
        str,
        typer.Option("--depths", metavar="N,...", help="Depths.", show_default="1, 2, 4 times with complete_p"),
    ] = "",
    rates: Annotated[
        str, typer.Option("--rates", metavar="FACTOR,...", help="Factors of the rates of the space.")
    ] = "0.125,0.25,0.5,1,2,4,8",
    steps: Annotated[
        int | None,
        typer.Option("--steps", metavar="N", min=1, help="Steps at each rate.", show_default="those of the space"),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", min=1, help="Seeds of each training run.")] = 2,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Draw both checks: a file .svg, .png or .pdf.")
    ] = None,
    data: DataOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> int:
    """Check whether learning rates that were tuned at one size hold at larger ones, as with mup and complete_p.

    It trains the baseline of a space at several widths and depths, first for ten steps to see how much the outputs of
    its layers change, then at several learning rates. Nothing is stored. Exit codes: 0 rates transfer, 1 they do
    not, or the best rate lies at an edge of --rates.
    """
    import torch

    from ablate.execution.environment import choose_device
    from ablate.locations import cache_folder
    from ablate.render.terminal.measures import FIGURES, draw_transfer, print_transfer, transfer_json, transfers
    from ablate.training.transfer import check_coordinates, measure_rates, sizes_of

    read = load_space(space, plugin, data)
    figure = None if out is None else picture_file("--out", out, FIGURES)
    if figure is not None:
        require("figures", "a picture of the check", where=f"--out {out}")
    variants = sizes_of(read, _numbers("--widths", widths), _numbers("--depths", depths))
    factors = _numbers("--rates", rates, whole=False)
    progress, folder = make_console(stderr=True), cache or cache_folder()
    task = read.task.open(folder, read.task.prepare(folder, lambda line: say(progress, line, style="dim")))
    chosen = choose_device(device)
    torch.set_num_threads(threads)
    say(progress, "Training every size for a few steps", style="dim")
    coordinates = check_coordinates(variants, task, chosen, range(seeds))
    curves = []
    runs = measure_rates(
        variants, task, chosen, factors=factors, seeds=range(seeds), steps=steps, objective=read.objective
    )
    for curve in runs:
        say(progress, f"{curve.dimension} {curve.size}: trained at {len(factors)} rates", style="dim")
        curves.append(curve)
    if json_:
        print_json(transfer_json(coordinates, curves))
    else:
        print_transfer(coordinates, curves, make_console())
    if figure:
        draw_transfer(coordinates, curves, figure)
        say(progress, f"Wrote {figure}")
    return 0 if transfers(coordinates, curves) else 1


def _numbers(option: str, text: str, *, whole: bool = True) -> list[float]:
    """Numbers with commas between, ascending, each once; none if the text is empty.

    Raises:
        AblateError: One is not a number above 0, or there is only one.
    """
    found: set[float] = set()
    for part in filter(None, text.split(",")):
        try:
            number = int(part) if whole else float(part)
        except ValueError:
            number = 0
        if not 0 < number < math.inf:
            kind = "whole numbers" if whole else "numbers"
            raise AblateError(
                "this is not a list of numbers", where=option, expected=f"{kind} above 0 with commas between", got=part
            )
        found.add(number)
    if text and len(found) < 2:
        raise AblateError("one number compares nothing", where=option, expected="two or more", got=text)
    return sorted(found)

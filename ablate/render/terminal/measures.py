"""What `ablate bench`, `inspect` and `check-transfer` measure of blocks and models: tables, JSON and a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from ablate.analysis.numbers import fixed, plural, scaled
from ablate.errors import AblateError
from ablate.execution.inspecting import Inspected
from ablate.metrics import GROWTHS, inside_name
from ablate.render.figures import save_to
from ablate.render.figures.style import PAPER, by_look, layers, mark, number, themed
from ablate.render.outputs import as_data
from ablate.render.table import bare_table
from ablate.render.terminal.outputs import TransferOutput
from ablate.timing import Setting, Timing, growth, threads_used
from ablate.training.transfer import LIMITS, STEPS, Coordinate, Dimension, RateCurve, grid_steps_apart

if TYPE_CHECKING:
    from ablate.render.terminal.outputs import BenchOutput, InspectOutput

FIGURES = (".svg", ".png", ".pdf")
"""Endings of pictures that can be drawn."""


def parse_lengths(text: str) -> list[int]:
    """`128,512` as numbers in rising order, each once.

    Raises:
        AblateError: One is not a whole number above 0.
    """
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not (part.isascii() and part.isdigit() and int(part) > 0):
            raise AblateError(
                "a length is not a number of tokens",
                where="--context",
                expected="whole numbers above 0 with commas between",
                got=f"`{part}`",
                remedy="For example: --context 128,512,2048.",
            )
    return sorted({int(part) for part in parts})


def bench_json(rows: Sequence[Timing], setting: Setting) -> BenchOutput:
    """Everything that was measured as plain data; null where there is no number."""
    return {
        "width": setting.width,
        "heads": setting.heads,
        "batch": setting.batch,
        "device": setting.device,
        "whole": setting.whole,
        "threads": threads_used(),
        "rows": [as_data(row) for row in rows],
        "growth": {name: slope if math.isfinite(slope) else None for name, slope in growth(rows).items()},
    }


def print_bench(rows: Sequence[Timing], setting: Setting, console: Console) -> None:
    """Print a table for each length, and how time grows."""
    what = "whole block" if setting.whole else "mixer"
    sizes = f"width {setting.width}, {plural(setting.heads, 'head')}, batch {setting.batch}"
    threads = f", {plural(threads_used(), 'thread')}" if setting.device == "cpu" else ""
    console.print(Text(f"{what}, forward and backward: {sizes}, {setting.device}{threads}"), soft_wrap=True)
    first = rows[0].block
    for length in dict.fromkeys(row.length for row in rows):
        console.print(Text(f"\n{length:,} tokens", style="bold"))
        table = bare_table("block", ("ms", "±", "tokens/s", "peak MiB", "FLOP/s", "of peak", f"× {first}"))
        refused = []
        for row in (row for row in rows if row.length == length):
            name = row.block if row.causal else f"{row.block} *"
            if row.why:
                refused.append(f"{name}: {row.why}")
                continue
            table.add_row(
                name,
                f"{1000 * row.seconds:.2f}",
                f"{row.spread:.0%}" if row.spread < 1 else "> 100%",
                scaled(row.tokens).strip(),
                f"{row.peak / 2**20:.1f}",
                scaled(row.flops).strip(),
                f"{row.share:.0%}",
                "-" if math.isnan(row.ratio) else f"{row.ratio:.2f}",
            )
        if table.row_count:
            console.print(table)
        for line in refused:
            console.print(Text(f"{line}", style="yellow"), soft_wrap=True)
    if not all(row.causal for row in rows):
        console.print(Text("* sees both sides; the others hide the future"))
    slopes = {name: slope for name, slope in growth(rows).items() if not math.isnan(slope)}
    reliable = {
        name: slope
        for name, slope in slopes.items()
        if not differ_within_spread([row for row in rows if row.block == name])
    }
    if reliable:
        grown = ", ".join(f"{name} L^{slope:.2f}" for name, slope in reliable.items())
        console.print(Text(f"\nTime grows as {grown}."), soft_wrap=True)
    if noisy := [name for name in slopes if name not in reliable]:
        line = f"How the time of {', '.join(noisy)} grows is lost in noise; longer or more distant lengths show it."
        console.print(Text(f"\n{line}"), soft_wrap=True)
    console.print(
        Text(f"× {first}: above 1 is faster. FLOPs as `ablate cost` counts them, three passes a step; a kernel that")
        + Text(" needs fewer may exceed the peak, which is that of a large product."),
        style="dim",
        soft_wrap=True,
    )


def differ_within_spread(rows: Sequence[Timing]) -> bool:
    """Whether the times of a block at its shortest and its longest length differ by less than they spread."""
    ran = sorted((row for row in rows if not row.why), key=lambda row: row.length)
    shortest, longest = ran[0], ran[-1]
    distance = abs(longest.seconds - shortest.seconds)
    return distance <= shortest.spread * shortest.seconds + longest.spread * longest.seconds


def draw_bench(rows: Sequence[Timing], file: Path) -> None:
    """Time a token against length, both logarithmic: flat is linear in L.

    Raises:
        AblateError: vl-convert-python is not installed, or the file cannot be written.
    """
    names = dict.fromkeys(row.block for row in rows)
    points = [{"block": row.block, "tokens": row.length, "time": 1e6 / row.tokens} for row in rows if not row.why]
    looks = {name: PAPER.look(index) for index, name in enumerate(names)}
    channels = {
        "x": number("tokens", "tokens L", log=True, base=2),
        "y": number("time", "µs a token, forward and backward", log=True),
    }
    lines = mark("line", points, {**channels, **by_look("block", looks, "color", "strokeDash")})
    marks = mark("point", points, {**channels, **by_look("block", looks, "color", "shape", "strokeDash")}, size=50)
    save_to(themed(layers([lines, marks], 380), PAPER), file)


_MOST_COLUMNS = 8


def inspect_json(found: Inspected) -> InspectOutput:
    """Everything that was measured, for each seed; null where a number is not finite."""

    def plain(values: Sequence[float]) -> list[float | None]:
        return [value if math.isfinite(value) else None for value in values]

    insides = found.insides
    return {
        "name": found.name,
        "on": found.on,
        "seeds": list(found.seeds),
        "by_block": {
            measure: {block: plain(values) for block, values in blocks.items()}
            for measure, blocks in insides.by_block.items()
        },
        "absent": insides.absent,
        "metrics": {name: plain(values) for name, values in insides.metrics(initial=True).items()},
    }


def print_inspected(found: Inspected, console: Console) -> None:
    """Print a row for each measure and a column for each block, means over the seeds."""
    insides = found.insides
    metrics = insides.metrics(initial=True)
    console.print(Text(f"{found.name} before training: {found.on}, {plural(len(found.seeds), 'seed')}"))
    blocks = list(insides.by_block["stream_rms"])
    count = min(len(blocks), _MOST_COLUMNS)
    chosen = [blocks[round(place * (len(blocks) - 1) / max(1, count - 1))] for place in range(count)]
    titles = [block.removeprefix("block ").replace("decoder block", "dec.") for block in chosen]
    table = bare_table("block", titles, gap=1)
    for measure, of_blocks in insides.by_block.items():
        table.add_row(measure, *(_cell(of_blocks.get(block)) for block in chosen))
    console.print(table)
    if len(chosen) < len(blocks):
        console.print(Text(f"{len(chosen)} of {len(blocks)}; --json has all", style="dim"))
    for measure, meaning in GROWTHS.items():
        console.print(Text(f"{measure} {_cell(metrics[inside_name(measure, initial=True)])}: {meaning}"))
    for why in dict.fromkeys(insides.absent.values()):
        absent = [measure for measure, reason in insides.absent.items() if reason == why]
        console.print(Text(f"no {', no '.join(absent)}: {why}", style="dim"))
    console.print(Text("0: the input of the first block", style="dim"))


def _cell(values: Sequence[float] | None) -> str:
    return "-" if values is None else f"{math.fsum(values) / len(values):.3g}"


def transfers(coordinates: Sequence[Coordinate], curves: Sequence[RateCurve]) -> bool:
    """Whether every part passes, and the best rates of a dimension are inside the grid and at most one step apart."""
    inside = not any(curve.at_edge for curve in curves)
    stays = all(grid_steps_apart(of) <= 1 for of in _by_dimension(curves).values())
    return inside and stays and all(part.passes for part in coordinates)


def transfer_json(coordinates: Sequence[Coordinate], curves: Sequence[RateCurve]) -> TransferOutput:
    """Everything that was measured as plain data; null where there is no number."""
    return {
        "transfers": transfers(coordinates, curves),
        "coordinates": [
            {
                "dimension": part.dimension,
                "part": part.part,
                "sizes": [*part.sizes],
                "values": [[*map(_number, steps)] for steps in part.values],
                "changes": [[*map(_number, steps)] for steps in part.changes],
                "exponent": _number(part.exponent),
                "passes": part.passes,
            }
            for part in coordinates
        ],
        "rates": [
            {
                "dimension": curve.dimension,
                "size": curve.size,
                "losses": [{"factor": factor, "loss": _number(loss)} for factor, loss in curve.losses.items()],
                "best": curve.best,
                "at_edge": curve.at_edge,
            }
            for curve in curves
        ],
        "grid_steps": {dimension: grid_steps_apart(of) for dimension, of in _by_dimension(curves).items()},
    }


def print_transfer(coordinates: Sequence[Coordinate], curves: Sequence[RateCurve], console: Console) -> None:
    """Print the verdict of each dimension, then what it rests on."""
    for dimension, of in _by_dimension(curves).items():
        console.print(_sentence(dimension, [part for part in coordinates if part.dimension == dimension], of))
    for dimension in _by_dimension(curves):
        parts = [part for part in coordinates if part.dimension == dimension]
        console.print(Text(f"\nChange of the outputs after {STEPS} steps, by {dimension}", style="bold"))
        table = bare_table("output", [*map(str, parts[0].sizes), "exponent"])
        for part in parts:
            cells = [f"{change[-1]:.3g}" for change in part.changes]
            passed = "" if part.passes else "  not 0"
            table.add_row(part.part, *cells, f"{part.exponent:+.2f}{passed}")
        console.print(table)
    for dimension, of in _by_dimension(curves).items():
        console.print(Text(f"\nLoss by learning rate, by {dimension}", style="bold"))
        table = bare_table("rates of the space", [str(curve.size) for curve in of])
        for factor in sorted(of[0].losses):
            cells = [
                ("diverged" if math.isinf(loss) else fixed(loss, 4)) + (" *" if factor == curve.best else "  ")
                for curve in of
                for loss in [curve.losses[factor]]
            ]
            table.add_row(f"× {factor:g}", *cells)
        console.print(table)
    limits = " and ".join(f"{LIMITS[dimension]:g} ({dimension})" for dimension in _by_dimension(curves))
    console.print(Text(f"* lowest. An output passes if its exponent is within {limits} of 0."), style="dim")


def _sentence(dimension: str, parts: Sequence[Coordinate], curves: Sequence[RateCurve]) -> Text:
    sizes = f"from {dimension} {curves[0].size} to {curves[-1].size}"
    steps, failed = grid_steps_apart(curves), [part.part for part in parts if not part.passes]
    moved = f"the best rate moves by {steps} steps of the grid" if steps > 1 else "the best rate stays"
    if not failed and steps <= 1 and not any(curve.at_edge for curve in curves):
        return Text(f"Rates transfer {sizes}: {moved}.", style="green")
    if not failed and steps <= 1:
        return Text(f"Unknown whether rates transfer {sizes}: the best is at an edge of --rates.", style="yellow")
    why = [*([f"the change of {' and '.join(failed)} depends on the {dimension}"] if failed else []), moved]
    return Text(f"Rates do not transfer {sizes}: {'; '.join(why)}.", style="yellow")


def draw_transfer(coordinates: Sequence[Coordinate], curves: Sequence[RateCurve], file: Path) -> None:
    """Changes of outputs against size, and the loss against the learning rate with a line for each size.

    Raises:
        AblateError: vl-convert-python is not installed, or the file cannot be written.
    """
    rows: list[dict[str, Any]] = [
        {"size": size, "change": change[step], "line": f"{part.part} by {part.dimension}, step {step}"}
        for part in coordinates
        for size, change in zip(part.sizes, part.changes, strict=True)
        for step in (1, STEPS)
        if change[step] > 0 and math.isfinite(change[step])
    ]
    losses: list[dict[str, Any]] = [
        {"factor": factor, "loss": loss, "line": f"{curve.dimension} {curve.size}"}
        for curve in curves
        for factor, loss in curve.losses.items()
        if math.isfinite(loss)
    ]
    panels = [
        _lines(rows, number("size", "size", log=True, base=2), number("change", "change of the output", log=True)),
        _lines(losses, number("factor", "learning rate × that of the space", log=True, base=2), number("loss", "loss")),
    ]
    spec = {"hconcat": panels, "resolve": {"scale": {"color": "independent", "shape": "independent"}}}
    save_to(themed(spec, PAPER), file)


def _lines(rows: list[dict[str, Any]], x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
    looks = {name: PAPER.look(index) for index, name in enumerate(dict.fromkeys(row["line"] for row in rows))}
    channels = {"x": x, "y": y, **by_look("line", looks, "color", "shape")}
    drawn = layers([mark("line", rows, channels), mark("point", rows, channels, size=40)], 260)
    return {**drawn, "width": 300}


def _by_dimension(curves: Sequence[RateCurve]) -> dict[Dimension, list[RateCurve]]:
    return {
        of: [curve for curve in curves if curve.dimension == of] for of in dict.fromkeys(c.dimension for c in curves)
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None

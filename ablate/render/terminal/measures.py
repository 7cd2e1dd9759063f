"""What `ablate bench` and `ablate inspect` measure of blocks and models, as tables, as JSON and as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ablate.analysis.numbers import plural, scaled
from ablate.errors import AblateError
from ablate.execution.inspecting import Inspected
from ablate.metrics import GROWTHS, inside_name
from ablate.render.figures import save_to
from ablate.render.figures.style import PAPER, by_look, layers, mark, number, themed
from ablate.render.outputs import as_data
from ablate.render.table import bare_table
from ablate.timing import Setting, Timing, growth, threads_used

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
        name: slope for name, slope in slopes.items() if not drowned([row for row in rows if row.block == name])
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


def drowned(rows: Sequence[Timing]) -> bool:
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

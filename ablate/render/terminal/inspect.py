"""`ablate inspect`: signal, gradients and attention by depth before any training, as a table and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ablate.analysis.text import plural
from ablate.execution.inspecting import Inspected
from ablate.metrics import GROWTHS, inside_name
from ablate.render.cells import bare_table

if TYPE_CHECKING:
    from ablate.render.terminal.outputs import InspectOutput

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
    for growth, meaning in GROWTHS.items():
        console.print(Text(f"{growth} {_cell(metrics[inside_name(growth, initial=True)])}: {meaning}"))
    for why in dict.fromkeys(insides.absent.values()):
        absent = [measure for measure, reason in insides.absent.items() if reason == why]
        console.print(Text(f"no {', no '.join(absent)}: {why}", style="dim"))
    console.print(Text("0: the input of the first block", style="dim"))


def _cell(values: Sequence[float] | None) -> str:
    return "-" if values is None else f"{math.fsum(values) / len(values):.3g}"

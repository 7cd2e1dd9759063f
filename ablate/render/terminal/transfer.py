"""`ablate check-transfer`: what layers compute at each size, the loss by learning rate, and whether rates transfer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from ablate.analysis.numbers import fixed
from ablate.render.figures import save_to
from ablate.render.figures.style import PAPER, by_look, layers, mark, number, themed
from ablate.render.table import bare_table
from ablate.render.terminal.outputs import TransferOutput
from ablate.training.transfer import LIMITS, STEPS, Coordinate, Dimension, RateCurve, grid_steps_apart


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

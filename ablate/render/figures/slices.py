"""The objective along each numeric axis, a panel for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ablate.analysis.findings import Findings
from ablate.analysis.slices import Slice, SliceLine
from ablate.render.blocks import Picture
from ablate.render.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION, WIDTH, verbatim

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = ((BLACK, "o"), (BLUE, "s"), (VERMILLION, "D"), (GREEN, "^"), (ORANGE, "v"), (PURPLE, "P"), (GREY, "X"))
"""Colour and marker of each line; of more lines the rest is not drawn."""
COLUMNS = 2
ASIDE = 0.006
"""The horizontal distance between lines, as a share of the axis."""


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The figure of a study with a numeric axis."""
    if not findings.slices:
        return ()
    axes = " and ".join(found.axis for found in findings.slices)
    hidden = sum(max(0, len(found.lines) - len(LINES)) for found in findings.slices if not found.scattered)
    rest = f" {hidden} further lines are left out." if hidden > 0 else ""
    return (Picture("slices", f"{findings.report.metric} along {axes}: means with 95 % intervals over seeds.{rest}"),)


def slices(findings: Findings) -> Figure:
    """A panel for each axis."""
    from matplotlib.figure import Figure

    found = findings.slices
    columns = min(COLUMNS, len(found))
    rows = math.ceil(len(found) / columns)
    figure = Figure(figsize=(WIDTH, 0.5 + 2.7 * rows), layout="constrained")
    panels: Any = figure.subplots(rows, columns, squeeze=False)
    for panel, one in zip(panels.flat, found, strict=False):
        _panel(panel, one)
    for panel in panels.flat[len(found) :]:
        panel.set_visible(False)
    return figure


def _panel(axes: Axes, found: Slice) -> None:
    if found.logarithmic:
        axes.set_xscale("log", base=2 if _doubles(found) else 10)
        axes.xaxis.set_major_formatter("{x:g}")
    if found.scattered:
        for line in found.lines:
            _line(axes, line, BLUE, "o", joined=False, aside=float)
    else:
        shown = list(zip(found.lines, LINES, strict=False))
        for number, (line, (colour, marker)) in enumerate(shown):
            _line(axes, line, colour, marker, joined=True, aside=_aside(found, number - (len(shown) - 1) / 2))
        if len(shown) > 1:
            axes.legend(fontsize=7, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0)
    axes.set_xlabel(verbatim(found.axis))
    better = "lower" if found.direction == "minimize" else "higher"
    axes.set_ylabel(verbatim(f"{found.metric} ({better} is better)"))


def _line(
    axes: Axes, line: SliceLine, colour: str, marker: str, *, joined: bool, aside: Callable[[float], float]
) -> None:
    points = [point for point in line.points if point.objective.mean is not None]
    halves = [
        0.0 if one.objective.low is None or one.objective.high is None else (one.objective.high - one.objective.low) / 2
        for one in points
    ]
    axes.errorbar(
        [aside(point.at) for point in points],
        [point.objective.mean or 0.0 for point in points],
        yerr=halves,
        color=colour,
        marker=marker,
        markersize=4.5,
        linewidth=1.1,
        elinewidth=0.7,
        linestyle="-" if joined else "none",
        label=verbatim(line.name),
    )


def _aside(found: Slice, places: float) -> Callable[[float], float]:
    """Shifts a position by this many steps, so that intervals of several lines do not overlap."""
    at = [point.at for line in found.lines for point in line.points]
    if found.logarithmic:
        return lambda value: value * (max(at) / min(at)) ** (ASIDE * places)
    return lambda value: value + ASIDE * places * (max(at) - min(at))


def _doubles(found: Slice) -> bool:
    """Whether every place is a power of two, as numbers of heads and lengths often are."""
    return all(math.log2(point.at).is_integer() for line in found.lines for point in line.points)


FIGURES: Mapping[str, Callable[[Findings], Figure]] = {"slices": slices}

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
    axes = " and ".join(axis_slice.axis for axis_slice in findings.slices)
    hidden = sum(
        max(0, len(axis_slice.lines) - len(LINES)) for axis_slice in findings.slices if not axis_slice.scattered
    )
    rest = f" {hidden} further lines are left out." if hidden > 0 else ""
    return (Picture("slices", f"{findings.report.metric} along {axes}: means with 95 % intervals over seeds.{rest}"),)


def slices(findings: Findings) -> Figure:
    """A panel for each axis."""
    from matplotlib.figure import Figure

    axis_slices = findings.slices
    columns = min(COLUMNS, len(axis_slices))
    rows = math.ceil(len(axis_slices) / columns)
    figure = Figure(figsize=(WIDTH, 0.5 + 2.7 * rows), layout="constrained")
    panels: Any = figure.subplots(rows, columns, squeeze=False)
    for panel, one in zip(panels.flat, axis_slices, strict=False):
        _panel(panel, one)
    for panel in panels.flat[len(axis_slices) :]:
        panel.set_visible(False)
    return figure


def _panel(axes: Axes, axis_slice: Slice) -> None:
    if axis_slice.logarithmic:
        axes.set_xscale("log", base=2 if _doubles(axis_slice) else 10)
        axes.xaxis.set_major_formatter("{x:g}")
    if axis_slice.scattered:
        for line in axis_slice.lines:
            _line(axes, line, BLUE, "o", joined=False, aside=float)
    else:
        shown = list(zip(axis_slice.lines, LINES, strict=False))
        for number, (line, (colour, marker)) in enumerate(shown):
            _line(axes, line, colour, marker, joined=True, aside=_aside(axis_slice, number - (len(shown) - 1) / 2))
        if len(shown) > 1:
            axes.legend(fontsize=7, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0)
    axes.set_xlabel(verbatim(axis_slice.axis))
    better = "lower" if axis_slice.direction == "minimize" else "higher"
    axes.set_ylabel(verbatim(f"{axis_slice.metric} ({better} is better)"))


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


def _aside(axis_slice: Slice, places: float) -> Callable[[float], float]:
    """Shifts a position by this many steps, so that intervals of several lines do not overlap."""
    at = [point.at for line in axis_slice.lines for point in line.points]
    if axis_slice.logarithmic:
        return lambda value: value * (max(at) / min(at)) ** (ASIDE * places)
    return lambda value: value + ASIDE * places * (max(at) - min(at))


def _doubles(axis_slice: Slice) -> bool:
    """Whether every place is a power of two, as numbers of heads and lengths often are."""
    return all(math.log2(point.at).is_integer() for line in axis_slice.lines for point in line.points)


FIGURES: Mapping[str, Callable[[Findings], Figure]] = {"slices": slices}

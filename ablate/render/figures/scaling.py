"""Differences from the baseline along budgets, or along the path of a sweep, with the margin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ablate.analysis.deciding import worst_margin
from ablate.analysis.findings import Findings
from ablate.analysis.scaling import Scaling, Scalings
from ablate.analysis.text import plural
from ablate.render.blocks import Picture
from ablate.render.figures.style import BLACK, BLUE, WIDTH, look_of, verbatim, wrapped
from ablate.spec.budgets import BUDGET

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 24
"""Variants beyond this number are not drawn."""
COLUMNS = 4
NAME = 24
"""Characters of a name on one line of the title of a panel."""


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The figure, if the study has such an axis."""
    scalings = findings.report.scaling
    if scalings is None:
        return ()
    hidden = len(scalings.of) - MOST_PANELS
    rest = f" Left out: {plural(hidden, 'further variant')}." if hidden > 0 else ""
    return (
        Picture(
            "scaling",
            f"Difference of {findings.report.metric} from the baseline at each {scalings.axis}, paired by seed, with "
            f"its 95 % interval; a mark is the verdict there, dashed the margin {findings.report.margin:g}.{rest}",
        ),
    )


def scaling(findings: Findings) -> Figure:
    """A panel for each variant, all with the same axes."""
    from matplotlib.figure import Figure

    report, scalings = findings.report, findings.report.scaling
    assert scalings is not None
    shown = scalings.of[:MOST_PANELS]
    columns = min(COLUMNS, len(shown))
    lines = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(WIDTH, 0.7 + 1.7 * lines), layout="constrained")
    panels: Any = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    margin = worst_margin(report.margin, report.direction)
    for panel, one in zip(panels.flat, shown, strict=False):
        _draw(panel, one, scalings, margin)
        panel.set_title(wrapped(one.variant, NAME), fontsize=7)
    for panel in panels.flat[len(shown) :]:
        panel.set_visible(False)
    along = "budget: steps over those of the space" if scalings.axis == BUDGET else scalings.axis
    figure.supxlabel(verbatim(along), fontsize=8)
    figure.supylabel(verbatim(f"difference of {report.metric}"), fontsize=8)
    return figure


def _draw(panel: Axes, one: Scaling, scalings: Scalings, margin: float) -> None:
    panel.axhline(0, color=BLACK, linewidth=0.8, zorder=0)
    panel.axhline(margin, color=BLACK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=0)
    known = [point for point in one.points if point.difference.difference is not None]
    panel.plot(
        [point.at for point in known],
        [point.difference.difference or 0.0 for point in known],
        color=BLUE,
        linewidth=1.0,
    )
    for point in known:
        low, high = point.difference.low, point.difference.high
        colour, marker = look_of(point.verdict.word)
        if low is not None and high is not None:
            panel.plot([point.at, point.at], [low, high], color=colour, linewidth=1.2)
        panel.plot(point.at, point.difference.difference or 0.0, color=colour, marker=marker, markersize=5)
    panel.set_xscale("log", base=2)
    panel.set_xticks(scalings.places, [f"{at:g}" for at in scalings.places])
    panel.minorticks_off()


FIGURES: Mapping[str, Callable[[Findings], Figure]] = {"scaling": scaling}

"""Effects with their intervals, and main effects and interactions as a heat map."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ablate.analysis.effects import EffectRow, StudyEffects
from ablate.analysis.findings import Findings
from ablate.analysis.numbers import decimals_for, fixed
from ablate.render.blocks import Picture
from ablate.render.figures.style import BLACK, BLUE, GREY, ORANGE, WIDTH, verbatim, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_INTERACTIONS = 12
"""Interactions drawn with their intervals, the largest ones."""
NAME = 48
"""Characters of a name on one line."""
MOST_CELLS = 16
"""Settings on each side of the heat map; of more none is drawn."""


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The figures of a study that crosses its switches."""
    fitted = findings.effects
    if fitted is None:
        return ()
    worse = "right" if fitted.direction == "minimize" else "left"
    left_out = len(fitted.interactions) - MOST_INTERACTIONS
    rest = f" The {left_out} smallest interactions are left out." if left_out > 0 else ""
    shown = [
        Picture(
            "effects",
            f"Effects on {fitted.metric} with 95 % intervals: main effects (circles) and interactions (diamonds); "
            f"further {worse} is worse. Dashed: the margin {fitted.margin:g} on either side.{rest}",
        )
    ]
    if fitted.interactions and len(fitted.main) <= MOST_CELLS:
        shown.append(
            Picture(
                "interactions",
                f"On the diagonal, how much each setting changes {fitted.metric} on average; below it, how much two "
                "together change it beyond the sum. A hyphen: not estimable from these trials.",
            )
        )
    return tuple(shown)


def effects(findings: Findings) -> Figure:
    """A row for each main effect, then for the largest interactions."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    fitted = findings.effects
    assert fitted is not None
    largest = sorted(fitted.interactions, key=lambda row: -abs(row.estimate))[:MOST_INTERACTIONS]
    figure = Figure(figsize=(WIDTH, 1.1 + 0.24 * (len(fitted.main) + len(largest))), layout="constrained")
    axes = figure.add_subplot()
    heights, labels, marks = [], [], []
    height = 0.0
    for rows, colour, marker, word in (
        (fitted.main, BLUE, "o", "main effect"),
        (largest, ORANGE, "D", "interaction"),
    ):
        for row in rows:
            _interval(axes, row, height, colour, marker)
            heights.append(height)
            labels.append(wrapped(row.name, NAME))
            height += 1.0
        height += 0.4
        if rows:
            marks.append(Line2D([], [], color=colour, marker=marker, markersize=5, linewidth=1.2, label=word))
    axes.set_yticks(heights, labels)
    axes.set_ylim(heights[-1] + 0.7, -0.7)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.axvline(0, color=BLACK, linewidth=0.8, zorder=0)
    for margin in (-fitted.margin, fitted.margin):
        axes.axvline(margin, color=GREY, linewidth=0.8, linestyle=(0, (4, 2)), zorder=0)
    better = "lower" if fitted.direction == "minimize" else "higher"
    axes.set_xlabel(verbatim(f"change of {fitted.metric} ({better} is better)"))
    figure.legend(handles=marks, loc="outside upper right", ncols=len(marks))
    return figure


def _interval(axes: Axes, row: EffectRow, height: float, colour: str, marker: str) -> None:
    if row.low is not None and row.high is not None:
        axes.plot([row.low, row.high], [height, height], color=colour, linewidth=1.4, solid_capstyle="butt")
    axes.plot(
        row.estimate, height, marker=marker, color=colour, markersize=5, markeredgecolor="white", linestyle="none"
    )


def interactions(findings: Findings) -> Figure:
    """A cell for each pair of settings, coloured and numbered."""
    import numpy as np
    from matplotlib.figure import Figure

    fitted = findings.effects
    assert fitted is not None
    names = [row.settings[0] for row in fitted.main]
    values = np.full((len(names), len(names)), np.nan)
    for row in (*fitted.main, *fitted.interactions):
        first, last = (names.index(row.settings[at]) for at in (0, -1))
        values[max(first, last), min(first, last)] = row.estimate
    most = float(np.nanmax(np.abs(values))) or 1.0
    size = min(WIDTH, 2.6 + 0.55 * len(names))
    figure = Figure(figsize=(size, 0.62 * size), layout="constrained")
    axes = figure.add_subplot()
    # Purple to orange: distinguishable with colour blindness; grey is symmetric, and printed numbers have signs.
    image = axes.imshow(values, cmap="PuOr_r", vmin=-most, vmax=most, aspect="auto")
    labels = [verbatim(f"{switch}={setting}") for switch, setting in names]
    axes.set_xticks(range(len(names)), labels, rotation=35, ha="right")
    axes.set_yticks(range(len(names)), labels)
    axes.tick_params(length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    _number(axes, values, most, fitted)
    figure.colorbar(image, ax=axes, label=verbatim(f"change of {fitted.metric}"), shrink=0.8)
    return figure


def _number(axes: Axes, values: object, most: float, fitted: StudyEffects) -> None:
    import numpy as np

    cells = np.asarray(values)
    decimals = decimals_for(fitted.margin, [])
    for (line, column), value in np.ndenumerate(cells):
        if column <= line:
            label = "-" if math.isnan(value) else fixed(float(value), decimals, sign=True)
            dark = not math.isnan(value) and abs(value) > 0.6 * most
            axes.text(column, line, label, ha="center", va="center", fontsize=7, color="white" if dark else BLACK)


FIGURES: Mapping[str, Callable[[Findings], Figure]] = {"effects": effects, "interactions": interactions}

"""Learning curves: validation loss against steps, FLOPs and, where variants were timed, seconds; a panel for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ablate.analysis.columns import groups
from ablate.analysis.curves import Axis, Band, band, heights, line
from ablate.analysis.findings import Findings
from ablate.analysis.rows import VariantRow
from ablate.analysis.speed import seconds_at
from ablate.analysis.text import plural
from ablate.render.blocks import Picture
from ablate.render.figures.style import BLUE, GREY, WIDTH, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 40
"""Curves of more variants than this are not drawn."""
COLUMNS = 4
NAME = 24
"""Characters of a name on one line of the title of a panel."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """What a learning curve is drawn against."""

    of: Axis
    label: str
    words: str
    timed: bool = False


AXES = {
    "loss_steps": _Axis("steps", "steps", "optimizer steps"),
    "loss_seconds": _Axis("tokens", "seconds of training", "seconds of training, as timed side by side", timed=True),
    "loss_flops": _Axis("flops", "FLOP", "training FLOP"),
}


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The figures of a study whose baseline has a curve."""
    figures = []
    shown, hidden = _panels(findings)
    rest = f" Left out: {plural(hidden, 'further variant')}." if hidden else ""
    if lost := [row.name for row in findings.report.variants if row.diverged and not row.finished]:
        rest += f" No seed finished, and so there is no curve, of {', '.join(lost)}."
    drawn = [findings.report.baseline, *shown]
    for name, axis in AXES.items():
        if axis.timed and not all(findings.runs[row.name].rates for row in drawn):
            continue
        if shown and max(x for row in shown for x in _mean_curve(findings, row.name, axis).x) > 0:
            figures.append(
                Picture(
                    name,
                    f"Validation loss against {axis.words}: the mean over the finished seeds, in a band from the "
                    f"lowest to the highest; the baseline in grey, dashed.{rest}",
                )
            )
    return tuple(figures)


def _panels(findings: Findings) -> tuple[list[VariantRow], int]:
    """The variants whose curves are drawn, and how many more there are; none unless the baseline has a curve."""
    steps = AXES["loss_steps"]
    rows = [row for group in groups(findings.report) for row in group if _mean_curve(findings, row.name, steps).x]
    if findings.report.baseline not in rows:
        return [], 0
    variants = [row for row in rows if row is not findings.report.baseline] or [findings.report.baseline]
    return variants[:MOST_PANELS], max(0, len(variants) - MOST_PANELS)


def _mean_curve(findings: Findings, variant: str, axis: _Axis) -> Band:
    """The curves of a variant in one band; over seconds by its timed rate, as the clocks of trials say nothing."""
    runs = findings.runs[variant]
    lines = [line(findings.curves.get(trial.key, ()), axis.of) for trial in runs.finished.values()]
    return band([replace(one, x=seconds_at(one.x, runs.rates)) for one in lines] if axis.timed else lines)


def _curves(findings: Findings, axis: _Axis) -> Figure:
    from matplotlib.figure import Figure

    shown, _ = _panels(findings)
    baseline = _mean_curve(findings, findings.report.baseline.name, axis)
    columns = min(COLUMNS, len(shown))
    lines = math.ceil(len(shown) / columns)
    titles = [wrapped(row.name, NAME) for row in shown]
    tallest = [max(title.count("\n") for title in titles[at : at + columns]) for at in range(0, len(titles), columns)]
    height = 0.5 + sum(1.55 + 0.13 * max(0, more - 1) for more in tallest)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    panels: Any = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    bands = [_mean_curve(findings, row.name, axis) for row in shown]
    for panel, row, curve, title in zip(panels.flat, shown, bands, titles, strict=False):
        _band(panel, baseline, GREY, "--")
        _band(panel, curve, BLUE, "-")
        diverged = f"\n{len(row.diverged)} of {plural(len(row.planned), 'seed')} diverged" if row.diverged else ""
        panel.set_title(title + diverged, fontsize=7 if max(tallest) > 1 else 8)
    for panel in panels.flat[len(shown) :]:
        panel.set_visible(False)
    for panel in panels.flat[max(0, len(shown) - columns) : len(shown)]:
        panel.xaxis.set_tick_params(labelbottom=True)  # also above a place that is left empty
    if limits := heights([baseline, *bands]):
        panels[0, 0].set_ylim(*limits)
    panels[0, 0].set_xlim(left=0)
    figure.supxlabel(axis.label, fontsize=8)
    figure.supylabel("validation loss", fontsize=8)
    return figure


def _band(panel: Axes, curve: Band, colour: str, dash: str) -> None:
    panel.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.25, linewidth=0)
    panel.plot(curve.x, curve.mean, color=colour, linestyle=dash, linewidth=1.2)


FIGURES: Mapping[str, Callable[[Findings], Figure]] = {name: partial(_curves, axis=axis) for name, axis in AXES.items()}

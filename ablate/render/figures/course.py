"""The course of each comparison: its difference from the baseline against steps, with its interval and the margin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ablate.analysis.columns import groups
from ablate.analysis.course import course_cell, course_limits
from ablate.analysis.deciding import worst_margin
from ablate.analysis.findings import Findings
from ablate.analysis.rows import Course, VariantRow
from ablate.analysis.text import plural
from ablate.render.blocks import Picture
from ablate.render.figures.style import BLACK, BLUE, GREY, WIDTH, legend_of, look_of, verbatim, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 40
"""Courses of more variants than this are not drawn."""
COLUMNS = 4
NAME = 24
"""Characters of a name on one line of the title of a panel."""


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The figure, if any comparison has a course."""
    report = findings.report
    rows = _rows(findings)
    if not rows:
        return ()
    hidden = len(rows) - MOST_PANELS
    worse = "up" if report.direction == "minimize" else "down"
    rest = f" Left out: {plural(hidden, 'further variant')}." if hidden > 0 else ""
    decayed = any(row.course is not None and row.course.comparable is False for row in rows)
    caution = " The learning rate decays, so earlier points are no shorter trainings." if decayed else ""
    return (
        Picture(
            "course",
            f"Difference of {report.metric} from the baseline at each evaluation, paired by seed, with its 95 % "
            f"interval ({worse} is worse; dashed: the margin {report.margin:g}). A mark is the verdict that the study "
            f"would have had there; shaded is the last third, whose movement the title names.{caution}{rest}",
        ),
    )


def _rows(findings: Findings) -> list[VariantRow]:
    return [row for group in groups(findings.report) for row in group if row.course is not None]


def course(findings: Findings) -> Figure:
    """A panel for each variant, all with the same axes."""
    from matplotlib.figure import Figure

    report, shown = findings.report, _rows(findings)[:MOST_PANELS]
    columns = min(COLUMNS, len(shown))
    lines = math.ceil(len(shown) / columns)
    titles = [f"{wrapped(row.name, NAME)}\n{course_cell(row.course)}" for row in shown]
    tallest = [max(title.count("\n") for title in titles[at : at + columns]) for at in range(0, len(titles), columns)]
    figure = Figure(figsize=(WIDTH, 0.7 + sum(1.5 + 0.13 * more for more in tallest)), layout="constrained")
    panels: Any = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    margin = worst_margin(report.margin, report.direction)
    for panel, row, title in zip(panels.flat, shown, titles, strict=False):
        assert row.course is not None
        _draw(panel, row.course, margin)
        panel.set_title(title, fontsize=7)
    for panel in panels.flat[len(shown) :]:
        panel.set_visible(False)
    for panel in panels.flat[max(0, len(shown) - columns) : len(shown)]:
        panel.xaxis.set_tick_params(labelbottom=True)  # also above a place that is left empty
    panels[0, 0].set_ylim(*course_limits([row.course for row in shown if row.course is not None], margin))
    figure.supxlabel("steps", fontsize=8)
    figure.supylabel(verbatim(f"difference of {report.metric}"), fontsize=8)
    _explain(figure, shown)
    return figure


def _draw(panel: Axes, course: Course, margin: float) -> None:
    points = course.points
    steps = [point.step for point in points]
    low = [point.difference if point.low is None else point.low for point in points]
    high = [point.difference if point.high is None else point.high for point in points]
    panel.axhline(0, color=BLACK, linewidth=0.8, zorder=0)
    panel.axhline(margin, color=BLACK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=0)
    panel.axvspan(steps[-1] * 2 / 3, steps[-1], color=GREY, alpha=0.13, linewidth=0, zorder=-1)
    panel.fill_between(steps, low, high, color=BLUE, alpha=0.25, linewidth=0)
    panel.plot(steps, [point.difference for point in points], color=BLUE, linewidth=1.2)
    for point in points:
        colour, marker = look_of(point.word)
        panel.plot(point.step, point.difference, color=colour, marker=marker, markersize=4, linestyle="none")


def _explain(figure: Figure, shown: list[VariantRow]) -> None:
    from matplotlib.lines import Line2D

    present = {point.word for row in shown if row.course is not None for point in row.course.points}
    marks = [
        Line2D([], [], color=colour, marker=marker, markersize=4, linestyle="none", label=word)
        for word, colour, marker in legend_of(present)
    ]
    figure.legend(handles=marks, loc="outside upper right", ncols=len(marks))


FIGURES: Mapping[str, Callable[[Findings], Figure]] = {"course": course}

"""The course of comparisons: differences from the baseline against the cost of training, with bands and the margin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import plotly.graph_objects as go

from ablate.analysis.columns import groups
from ablate.analysis.course import course_cell, course_limits
from ablate.analysis.curves import Band
from ablate.analysis.deciding import worst_margin
from ablate.analysis.rows import Course, VariantRow
from ablate.analysis.study import StudyReport
from shared.bands import draw_band
from shared.charts import figure, ink
from shared.colours import variant_looks
from shared.text import for_plotly

CourseAxis = Literal["step", "tokens", "flops"]
AXES: dict[CourseAxis, str] = {"step": "steps", "tokens": "tokens", "flops": "FLOP"}
FIRST = 7
"""Variants that are drawn before others are chosen."""
LISTED = 12
"""Number of variants up to which the legend has all, to show and hide; beyond it a list selects some."""
MOST = 24
"""Maximum number of variants that may be chosen."""


def coursed(report: StudyReport) -> list[VariantRow]:
    """The variants whose comparison has a course, in the order of the table."""
    return [row for group in groups(report) for row in group if row.course is not None]


def course_figure(report: StudyReport, axis: CourseAxis, rows: Sequence[VariantRow], shown: int = FIRST) -> go.Figure:
    """A line with its 95 % band for each of these rows, and the margin; rows beyond `shown` are hidden at first."""
    made = figure(440 + 20 * max(0, len(rows) - FIRST), showlegend=True)
    looks, margin = variant_looks(report.record), worst_margin(report.margin, report.direction)
    made.add_hline(0, line={"color": ink(), "width": 1})
    made.add_hline(
        margin,
        line={"color": ink(), "width": 1, "dash": "dash"},
        annotation_text=f"margin {report.margin:g}",
        annotation_position="top right",
    )
    for number, row in enumerate(rows):
        assert row.course is not None
        before = len(made.data)
        draw_band(made, row.name, _band(row.course, axis), looks[row.name])
        if number >= shown:
            for trace in made.data[before:]:
                trace.visible = "legendonly"
    better = "lower" if report.direction == "minimize" else "higher"
    made.update_xaxes(title=AXES[axis])
    made.update_yaxes(title=for_plotly(f"difference of {report.metric}") + f"<br>({better} is better)")
    made.update_yaxes(range=course_limits([row.course for row in rows[:shown] if row.course is not None], margin))
    return made


def course_alt(report: StudyReport, rows: Sequence[VariantRow]) -> str:
    """What the figure shows, in words."""
    said = "; ".join(f"{row.name} {course_cell(row.course)}" for row in rows[:20])
    return f"Differences from the baseline along training with the margin {report.margin:g}: {said}"


def _band(course: Course, axis: CourseAxis) -> Band:
    points = course.points
    return Band(
        x=tuple(float(getattr(point, axis)) for point in points),
        mean=tuple(point.difference for point in points),
        low=tuple(point.difference if point.low is None else point.low for point in points),
        high=tuple(point.difference if point.high is None else point.high for point in points),
        n=points[-1].n,
    )

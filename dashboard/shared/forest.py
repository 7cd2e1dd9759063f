"""The forest plot: differences from the baseline, paired by seed, with the margin drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from ablate.analysis.columns import groups
from ablate.analysis.deciding import deciding_bounds, worst_margin
from ablate.analysis.rows import SELECTED, VariantRow
from ablate.analysis.study import StudyReport
from shared.charts import faint, figure, ink
from shared.colours import verdict_look
from shared.text import for_plotly, in_lines

MOST = 60
"""Maximum number of rows of one plot; more are shown page by page."""


def compared(report: StudyReport) -> list[VariantRow]:
    """The variants with a difference to draw, in the order of the table; if they are many, in that of `telling`."""
    rows = [row for group in groups(report) for row in group if row.difference is not None]
    rows = [row for row in rows if row.diverged or (row.difference and row.difference.difference is not None)]
    return telling(rows, report.direction) if len(rows) > MOST else rows


def telling(rows: Sequence[VariantRow], direction: str) -> list[VariantRow]:
    """The most informative first: the decided ones, best first; then those that need the fewest seeds for a decision.

    Args:
        rows: Compared variants.
        direction: `minimize` or `maximize`, of the objective.
    """

    def place(row: VariantRow) -> tuple[bool, float, float]:
        worse = row.difference.difference if row.difference else None
        signed = math.inf if worse is None else worse if direction == "minimize" else -worse
        if row.verdict is not None and row.verdict.word != "undecided":
            return False, 0.0, signed
        further = row.verdict.further_seeds if row.verdict is not None else None
        return True, math.inf if further is None else further, signed

    return sorted(rows, key=place)


def forest(report: StudyReport, rows: Sequence[VariantRow]) -> go.Figure:
    """The plot of these rows: thick lines are the bounds behind the verdict, thin ones 95 % intervals, dots seeds."""
    better = "lower" if report.direction == "minimize" else "higher"
    names = [in_lines(row.name) for row in rows]
    made = figure(170 + row_height(names) * len(rows), showlegend=True)
    margin = worst_margin(report.margin, report.direction)
    low, high = _reach(rows, margin)
    made.add_vrect(margin, high if margin > 0 else low, fillcolor=faint(), line_width=0, layer="below")
    made.add_vline(0, line={"color": ink(), "width": 1})
    made.add_vline(
        margin,
        line={"color": ink(), "width": 1, "dash": "dash"},
        annotation={"text": f"margin {report.margin:g}", "yref": "paper", "y": 1.0, "yanchor": "bottom"},
    )
    alike: dict[str, list[tuple[int, VariantRow]]] = {}
    for height, row in enumerate(rows):
        alike.setdefault(row.verdict.word if row.verdict else SELECTED, []).append((height, row))
    for word, placed in alike.items():  # traces for each row would be slow for many
        _draw(made, word, placed, report, high if margin > 0 else low)
    made.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=names,
        range=[len(rows) - 0.4, -0.6], showgrid=False, zeroline=False, automargin=True,
    )  # fmt: skip
    made.update_xaxes(
        title=for_plotly(f"difference of {report.metric}") + f"<br>({better} is better)",
        range=[low, high], zeroline=False,
    )  # fmt: skip
    return made


def row_height(names: Sequence[str]) -> int:
    """Pixels of each row of a plot beside which these names stand, in lines."""
    return max(30, 15 * max((name.count("<br>") + 1 for name in names), default=1) + 4)


def _reach(rows: Sequence[VariantRow], margin: float) -> tuple[float, float]:
    ends = [0.0, 1.5 * margin]
    for row in rows:
        if row.difference is not None and not row.diverged:
            ends += [*row.difference.values]
            ends += [end for end in (row.difference.low, row.difference.high) if end is not None]
    room = 0.04 * (max(ends) - min(ends))
    return min(ends) - room, max(ends) + room


def _draw(made: go.Figure, word: str, placed: list[tuple[int, VariantRow]], report: StudyReport, edge: float) -> None:
    """Draw the rows of one verdict, each at its height."""
    look = verdict_look(word)
    thin, thick, dots = _Segments(), _Segments(), _Segments()
    ends: list[float | None] = []
    for height, row in placed:
        paired = row.difference
        assert paired is not None
        if _lost(row):
            ends.append(edge)
            continue
        ends.append(paired.difference)
        thin.add(height, paired.low, paired.high)
        if bound := deciding_bounds(row.verdict, report.direction):
            thick.add(height, bound.low, bound.high)
        for value in paired.values:
            dots.add(height + 0.28, value)
    common = {"legendgroup": word, "hoverinfo": "skip", "showlegend": False}
    for segments, width in ((thin, 1.5), (thick, 5)):
        line = {"color": look.colour, "width": width}
        made.add_scatter(x=segments.x, y=segments.y, mode="lines", line=line, **common)
    marker = {"color": ink(), "size": 4, "opacity": 0.6}
    made.add_scatter(x=dots.x, y=dots.y, mode="markers", marker=marker, **common)
    said = [f"{for_plotly(row.verdict_sentence or '', 120)}  " if _lost(row) else "" for _, row in placed]
    made.add_scatter(
        x=ends, y=[height for height, _ in placed], name=word, legendgroup=word, mode="markers+text", text=said,
        textposition="middle left" if edge > 0 else "middle right", textfont={"color": ink()},
        marker={"symbol": look.mark, "size": 11, "color": look.colour}, cliponaxis=False,
        customdata=[_hover(row) for _, row in placed], hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip


class _Segments:
    """Lines or points of one trace, each followed by a gap."""

    def __init__(self) -> None:
        self.x: list[float | None] = []
        self.y: list[float | None] = []

    def add(self, height: float, *places: float | None) -> None:
        """Add a line through these positions, unless one is unknown."""
        if None not in places:
            self.x += [*places, None]
            self.y += [*[height] * len(places), None]


def _lost(row: VariantRow) -> bool:
    return bool(row.diverged) or row.difference is None or row.difference.difference is None


def _hover(row: VariantRow) -> str:
    said = f"{for_plotly(row.name)}<br>{for_plotly(row.verdict_sentence or '', 120)}"
    paired = row.difference
    if paired is None or _lost(row) or paired.low is None or paired.high is None:
        return said
    return f"{said}<br>{paired.difference:+.4g} [{paired.low:+.4g}, {paired.high:+.4g}], {paired.n} seeds"

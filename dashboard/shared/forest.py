"""The forest plot: differences from the baseline, paired by seed, with the margin drawn."""

from __future__ import annotations

import plotly.graph_objects as go

from ablate.report.deciding import deciding_bounds, worst_margin
from ablate.report.study import StudyReport, VariantRow
from ablate.report.table import groups
from shared.charts import faint, figure, ink
from shared.colours import verdict_look
from shared.text import for_plotly

MOST = 60
"""Rows of one plot; further variants stand in the table only."""


def compared(report: StudyReport) -> list[VariantRow]:
    """The variants that have a difference to draw, in the order of the table."""
    rows = [row for group in groups(report) for row in group if row.difference is not None]
    return [row for row in rows if row.diverged or (row.difference and row.difference.difference is not None)]


def forest(report: StudyReport) -> go.Figure:
    """The plot; thick the bounds that the verdict rests on, thin the 95 % interval, dots the single seeds."""
    rows = compared(report)[:MOST]
    better = "lower" if report.direction == "minimize" else "higher"
    made = figure(170 + 30 * len(rows), showlegend=True)
    margin = worst_margin(report)
    low, high = _reach(rows, margin)
    made.add_vrect(margin, high if margin > 0 else low, fillcolor=faint(), line_width=0, layer="below")
    made.add_vline(0, line={"color": ink(), "width": 1})
    made.add_vline(
        margin,
        line={"color": ink(), "width": 1, "dash": "dash"},
        annotation={"text": f"margin {report.margin:g}", "yref": "paper", "y": 1.0, "yanchor": "bottom"},
    )
    named: set[str] = set()
    for height, row in enumerate(rows):
        _draw(made, row, report, height, high if margin > 0 else low, named)
    made.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=[for_plotly(row.name) for row in rows],
        range=[len(rows) - 0.4, -0.6], showgrid=False, zeroline=False, automargin=True,
    )  # fmt: skip
    made.update_xaxes(
        title=for_plotly(f"difference of {report.metric} from the baseline") + f"<br>({better} is better)",
        range=[low, high], zeroline=False,
    )  # fmt: skip
    return made


def _reach(rows: list[VariantRow], margin: float) -> tuple[float, float]:
    ends = [0.0, 1.5 * margin]
    for row in rows:
        if row.difference is not None and not row.diverged:
            ends += [*row.difference.values]
            ends += [end for end in (row.difference.low, row.difference.high) if end is not None]
    room = 0.04 * (max(ends) - min(ends))
    return min(ends) - room, max(ends) + room


def _draw(made: go.Figure, row: VariantRow, report: StudyReport, height: int, edge: float, named: set[str]) -> None:
    assert row.difference is not None
    assert row.verdict is not None
    look, word, paired = verdict_look(row.verdict.word), row.verdict.word, row.difference
    said = f"{for_plotly(row.name)}<br>{for_plotly(row.verdict.sentence, 120)}"
    common = {"legendgroup": word, "hoverinfo": "skip", "showlegend": False}
    lost = bool(row.diverged) or paired.difference is None
    if not lost and paired.low is not None and paired.high is not None:
        line = {"color": look.colour, "width": 1.5}
        made.add_scatter(x=[paired.low, paired.high], y=[height, height], mode="lines", line=line, **common)
        said += f"<br>{paired.difference:+.4g} [{paired.low:+.4g}, {paired.high:+.4g}], {paired.n} seeds"
    if not lost and (bound := deciding_bounds(paired, report)):
        line = {"color": look.colour, "width": 5}
        made.add_scatter(x=[bound.low, bound.high], y=[height, height], mode="lines", line=line, **common)
    if not lost:
        dots = {"color": ink(), "size": 4, "opacity": 0.6}
        made.add_scatter(x=list(paired.values), y=[height + 0.28] * paired.n, mode="markers", marker=dots, **common)
    made.add_scatter(
        x=[edge if lost else paired.difference], y=[height], name=word, legendgroup=word,
        mode="markers+text" if lost else "markers", text=[f"{for_plotly(row.verdict.sentence, 120)}  "],
        textposition="middle left" if edge > 0 else "middle right", textfont={"color": ink()},
        marker={"symbol": look.mark, "size": 11, "color": look.colour}, showlegend=word not in named,
        hovertemplate=f"{said}<extra></extra>", cliponaxis=False,
    )  # fmt: skip
    named.add(word)

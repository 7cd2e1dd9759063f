"""Figures of the effects of switches: effects with their intervals, the heat map of pairs, importances."""

from __future__ import annotations

from dataclasses import replace

import plotly.graph_objects as go

from ablate.analysis.effects import EffectRow, StudyEffects
from ablate.analysis.importances import StudyImportances
from shared.charts import faint, figure, ink
from shared.colours import dark, look, on_paper, verdict_look
from shared.forest import row_height
from shared.text import for_plotly, in_lines

MOST_ROWS = 40
"""Maximum number of main effects and of interactions that are drawn, the largest first; the table has all."""
NAME = 32
"""Maximum number of characters in a line of a name beside the plot."""
MOST_CELLS = 40
"""Maximum number of settings on each side of the heat map; with more it is not drawn."""


def with_aliases(row: EffectRow) -> str:
    """The name of an effect with its aliases."""
    return row.name if not row.aliases else f"{row.name} ≡ {', '.join(row.aliases)}"


def side(row: EffectRow, effects: StudyEffects) -> str:
    """Where the 95 % interval of an effect lies: `worse` or `better` by more than the margin, `within` it, `unclear`.

    For an interaction, `worse than the sum` or `better than the sum`: two settings that are better together than the
    sum of their effects may still be worse than the baseline.
    """
    margin = effects.margin
    if row.low is None or row.high is None or (row.low <= margin and row.high >= -margin):
        inside = row.low is not None and row.high is not None and -margin < row.low and row.high < margin
        return "within" if inside else "unclear"
    word = "worse" if effects.is_worse(row.estimate) else "better"
    return word if len(row.settings) == 1 else f"{word} than the sum"


def draw_effects(effects: StudyEffects) -> go.Figure:
    """A row for each main effect, then for each interaction, the largest first; dashed lines are the margin."""
    pairs = sorted(effects.interactions, key=lambda row: -abs(row.estimate))
    rows = [*effects.main[:MOST_ROWS], *pairs[:MOST_ROWS]]
    names = [_named(row) for row in rows]
    made = figure(150 + row_height(names) * len(rows))
    for at in (-effects.margin, effects.margin):
        made.add_vline(at, line={"color": ink(), "width": 1, "dash": "dash"})
    made.add_vline(0, line={"color": ink(), "width": 1})
    looks = {"worse": verdict_look("worse"), "better": verdict_look("better")}
    looks |= {f"{word} than the sum": replace(drawn, mark=f"{drawn.mark}-open") for word, drawn in looks.items()}
    looks |= {"within": verdict_look("not worse"), "unclear": verdict_look("undecided")}
    named: set[str] = set()
    for height, row in enumerate(rows):
        word = side(row, effects)
        drawn = looks[word]
        interval = ""
        if row.low is not None and row.high is not None:
            interval = f"<br>{row.low:+.4g} to {row.high:+.4g}"
            made.add_scatter(
                x=[row.low, row.high], y=[height, height], mode="lines", legendgroup=word, showlegend=False,
                hoverinfo="skip", line={"color": drawn.colour, "width": 2},
            )  # fmt: skip
        made.add_scatter(
            x=[row.estimate], y=[height], mode="markers", name=word, legendgroup=word, showlegend=word not in named,
            marker={"symbol": drawn.mark, "size": 10, "color": drawn.colour,
                    "line": {"color": drawn.colour, "width": 1.5}},
            hovertemplate=f"{for_plotly(with_aliases(row), 160)}<br>{row.estimate:+.4g}{interval}<extra></extra>",
        )  # fmt: skip
        named.add(word)
    if 0 < len(effects.main) < len(rows):
        made.add_hline(min(len(effects.main), MOST_ROWS) - 0.5, line={"color": faint(), "width": 2})
    made.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=names,
        range=[len(rows) - 0.4, -0.6], showgrid=False, zeroline=False, automargin=True,
    )  # fmt: skip
    title = f"{effects.metric}, worse →" if effects.direction == "minimize" else f"← worse, {effects.metric}"
    made.update_xaxes(
        title=for_plotly(title),
        range=_reach(rows, effects),
        zeroline=False,
    )
    return made


def _named(row: EffectRow) -> str:
    """The name of an effect with its aliases in a second line, short enough for a telephone."""
    name = in_lines(row.name, NAME)
    return name if not row.aliases else f"{name}<br>{for_plotly('≡ ' + ', '.join(row.aliases), NAME)}"


def _reach(rows: list[EffectRow], effects: StudyEffects) -> list[float]:
    """The range of the horizontal axis: every interval and the margin on either side, with some space."""
    ends = [effects.margin, -effects.margin]
    for row in rows:
        ends += [end for end in (row.low, row.high, row.estimate) if end is not None]
    room = 0.04 * (max(ends) - min(ends))
    return [min(ends) - room, max(ends) + room]


def draw_pairs(effects: StudyEffects) -> go.Figure:
    """The heat map: main effects on the diagonal, interactions below it; blue better, orange worse."""
    settings = [row.settings[0] for row in effects.main]
    at = {setting: index for index, setting in enumerate(settings)}
    cells: list[list[float | None]] = [[None] * len(settings) for _ in settings]
    words = [["not estimable"] * len(settings) for _ in settings]
    for row in (*effects.main, *effects.interactions):
        column, line = sorted((at[row.settings[0]], at[row.settings[-1]]))
        cells[line][column] = row.estimate
        interval = "" if row.low is None or row.high is None else f" [{row.low:+.3g}, {row.high:+.3g}]"
        words[line][column] = f"{for_plotly(with_aliases(row), 160)}<br>{row.estimate:+.4g}{interval}"
    most = max((abs(row.estimate) for row in (*effects.main, *effects.interactions)), default=1.0) or 1.0
    low, high = (on_paper(look(number).colour) for number in (0, 1))  # the tones on which white numbers stand out
    middle = "#1a222c" if dark() else "#f4f5f7"
    scale = [low, middle, high] if effects.direction == "minimize" else [high, middle, low]
    names = [for_plotly(f"{switch}={setting}", 32) for switch, setting in settings]
    made = figure(200 + 34 * len(names))
    made.add_heatmap(
        z=cells, x=list(range(len(names))), y=list(range(len(names))), zmin=-most, zmax=most, xgap=2, ygap=2,
        colorscale=[[0, scale[0]], [0.5, scale[1]], [1, scale[2]]], customdata=words, hoverongaps=False,
        texttemplate="%{z:+.2g}" if len(names) <= 14 else None,
        hovertemplate="%{customdata}<extra></extra>", colorbar={"title": for_plotly(effects.metric), "thickness": 12},
    )  # fmt: skip
    axis = {"tickvals": list(range(len(names))), "ticktext": names, "showgrid": False, "zeroline": False}
    made.update_xaxes(**axis, automargin=True)
    made.update_yaxes(**axis, automargin=True, range=[len(names) - 0.5, -0.5])
    made.update_layout(margin={"b": 8})
    return made


def draw_importances(importances: StudyImportances) -> go.Figure:
    """A bar for each switch and axis, the most important first, and one for the rest."""
    names = [one.factor for one in importances.factors]
    heights = list(range(len(names)))
    made = figure(140 + 32 * (len(names) + 1), showlegend=False)
    known = [one.low is not None and one.high is not None for one in importances.factors]
    made.add_bar(
        x=[100 * one.share for one in importances.factors], y=heights, orientation="h",
        marker={"color": look(0).colour},
        error_x={
            "type": "data", "symmetric": False, "color": ink(), "thickness": 1.5,
            "array": [100 * ((one.high or 0) - one.share) if is_known else 0
                      for one, is_known in zip(importances.factors, known, strict=True)],
            "arrayminus": [100 * (one.share - (one.low or 0)) if is_known else 0
                           for one, is_known in zip(importances.factors, known, strict=True)],
        },
        customdata=[for_plotly(name) for name in names], hovertemplate="%{customdata}<br>%{x:.1f} %<extra></extra>",
    )  # fmt: skip
    made.add_bar(
        x=[100 * importances.rest], y=[len(names)], orientation="h", hovertemplate="%{x:.1f} %<extra></extra>",
        marker={"color": "rgba(0,0,0,0)", "line": {"color": ink(), "width": 1},
                "pattern": {"shape": "/", "fgcolor": ink(), "fillmode": "overlay"}},
    )  # fmt: skip
    made.update_yaxes(
        tickvals=[*heights, len(names)], ticktext=[*map(for_plotly, names), "together, and noise"],
        range=[len(names) + 0.6, -0.6], showgrid=False, automargin=True,
    )  # fmt: skip
    made.update_xaxes(title="share of the variance (%)", rangemode="tozero")
    return made

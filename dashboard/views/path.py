"""Path: the components that `simplify` removed one by one, the cost and savings of each step, and the blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from ablate.analysis.numbers import count
from ablate.analysis.path import Removal, RemovalPath, VariantSummary
from ablate.render.sections.path import outcome
from ablate.stats import PairedDifference
from ablate.store import StudyRecord
from shared import results
from shared.charts import chart, figure, ink
from shared.colours import look, verdict_look
from shared.exports import Maker, export, table_files
from shared.frame import begin_page
from shared.numbers import arithmetic
from shared.pictures import BlockPicture, block_files, block_pictures
from shared.printed import printed
from shared.store import every
from shared.store import record as read_record
from shared.text import escape, for_plotly, prose
from shared.widths import wrapping

ABREAST = 3
"""Number of drawings in a row."""
WORDS = {"removal": 175, "from": 155, "what became of it": 235}
"""Widths of the columns of text."""
MOST_WHOLE = 20
"""Number of rows up to which the whole table is shown."""


def show() -> None:
    """Draw the page."""
    study = begin_page("Path")
    st.fragment(_live, run_every=every(study))(study)
    removal_path = results.path(study)
    if removal_path is not None:
        _pictures(removal_path, read_record(study))


def _live(study: str) -> None:
    if not results.any_ended(study):
        return
    removal_path = results.path(study)
    if removal_path is None:
        results.missing(
            study,
            "takes no path: it does not remove one component after the other",
            "`design: {kind: simplify, seeds: 3}` does, until nothing more can go.",
        )
        return
    with st.container(border=True):
        st.markdown(prose(outcome(removal_path)))
    if removal_path.trying:
        st.caption(
            escape(
                f"Round {len(removal_path.rounds) + 1} is not over: {', '.join(removal_path.trying)} are being tried."
            )
        )
    if any(one.relative_speed is None for one in _stations(removal_path)):
        st.caption("Speed is left out: no variant was timed. `ablate study FILE --time` does, after the trials.")
    if removal_path.steps:
        chart(_waterfall(removal_path), "waterfall", _alt(removal_path))
    table = removals(removal_path)
    st.subheader("What was tried", anchor=False)
    number = st.column_config.NumberColumn
    st.dataframe(
        table, key="removals", hide_index=True, placeholder="-", row_height=wrapping(table, WORDS),
        height="content" if len(table) <= MOST_WHOLE else "auto",
        column_order=_telling(table),
        column_config={
            "round": number(width=45), "path": st.column_config.CheckboxColumn(width=40, help="A step of the path"),
            **{name: st.column_config.TextColumn(width=width) for name, width in WORDS.items()},
            "parameters": number(format="localized", width=75), "FLOP": number(format="compact", width=50),
            "tokens/s": number(format="compact", width=60), "difference": number(format="%+.4f", width=70),
            "±": number(format="%.4f", width=58, help="Half of the 95 % interval of the difference"),
        },
        alt=f"Removals that were tried in {len(removal_path.rounds)} rounds, with what became of them",
    )  # fmt: skip
    st.caption(escape(f"The difference is that of {removal_path.metric} from the baseline, paired by seed, with its "
                      "95 % interval; a part can be removed if with 95 % confidence it is at most "
                      f"{removal_path.margin:g} "
                      "worse."))  # fmt: skip
    export(table_files(f"{study}_path", table) | printed(study, "path"), "path")


def _telling(table: pd.DataFrame) -> list[str]:
    """The columns with information: without the starting point of a removal if all start from the same one."""
    silent = {"verdict", "low", "high", *(["from"] if table["from"].nunique() < 2 else [])}
    return [str(name) for name in table if name not in silent and not table[name].isna().all()]


def removals(removal_path: RemovalPath) -> pd.DataFrame:
    """A row for the baseline and each removal that was tried, round by round."""
    begin = {"what became of it": "where it begins"}
    start = {"round": 0, "path": False, "removal": "baseline", **_costs(removal_path.baseline), **begin}
    rows = [start]
    for number, tried in enumerate(removal_path.rounds, 1):
        rows += [_row(number, one) for one in tried]
    columns = ["round", "path", "removal", "from", "parameters", "FLOP", "tokens/s", "difference", "±", "low", "high",
               "verdict", "what became of it"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def _row(number: int, one: Removal) -> dict[str, object]:
    paired = None if one.verdict.word == "diverged" else one.standing.difference
    return {
        "round": number,
        "path": one.on_path,
        "removal": f"{one.switch}={one.setting}",
        "from": one.parent,
        **_costs(one.standing),
        "difference": paired.difference if paired else None,
        "±": _half(paired),
        "low": paired.low if paired else None,
        "high": paired.high if paired else None,
        "verdict": one.verdict.word,
        "what became of it": one.reason,
    }


def _half(paired: PairedDifference | None) -> float | None:
    if paired is None or paired.low is None or paired.high is None:
        return None
    return (paired.high - paired.low) / 2


def _costs(standing: VariantSummary) -> dict[str, object]:
    return {"parameters": standing.parameters, "FLOP": standing.flops, "tokens/s": standing.tokens_per_second.mean}


def _stations(removal_path: RemovalPath) -> list[VariantSummary]:
    return [removal_path.baseline, *(step.standing for step in removal_path.steps)]


def _waterfall(removal_path: RemovalPath) -> go.Figure:
    """A row each for loss, parameters, FLOPs and speed, with a bar for the change in each step."""
    stations = _stations(removal_path)
    names = ["baseline", *(f"− {step.switch}={step.setting}" for step in removal_path.steps), "end"]
    quantities: dict[str, Sequence[float | None]] = {
        f"{removal_path.metric}<br>from the baseline": [_difference(one) for one in stations],
        "parameters": [float(one.parameters) for one in stations],
        "FLOP of a trial": [one.flops for one in stations],
        "tokens a second": [one.tokens_per_second.mean for one in stations],
    }
    shown = {title: values for title, values in quantities.items() if all(value is not None for value in values)}
    made = figure(150 + 170 * len(shown), showlegend=False)
    made.set_subplots(rows=len(shown), shared_xaxes=True, vertical_spacing=0.04)
    up, down = verdict_look("worse").colour, verdict_look("not worse").colour
    for row, (title, values) in enumerate(shown.items(), 1):
        known = [value or 0.0 for value in values]
        more_is_worse = not (title.startswith("tokens") or (row == 1 and removal_path.direction == "maximize"))
        changes = [after - before for before, after in pairwise(known)]
        made.add_waterfall(
            x=list(range(len(names))), y=[known[0], *changes, known[-1]],
            measure=["absolute", *["relative"] * len(changes), "total"], textposition="outside",
            text=[_number(title, known[0]), *(_number(title, change, True) for change in changes),
                  _number(title, known[-1], row == 1)],
            increasing={"marker": {"color": up if more_is_worse else down}},
            decreasing={"marker": {"color": down if more_is_worse else up}},
            totals={"marker": {"color": look(0).colour}}, connector={"line": {"color": ink(), "width": 1}},
            hovertemplate="%{text}<extra></extra>", cliponaxis=False, row=row, col=1,
        )  # fmt: skip
        low, high = min(0.0, *known), max(0.0, *known)
        if row == 1:
            low, high = _intervals(made, stations, removal_path, low, high)
        room = 0.22 * (high - low or 1.0)
        made.update_yaxes(title=for_plotly(title).replace("&lt;br&gt;", "<br>"), tickformat="~s" if row > 1 else None,
                          range=[low - (room if low < 0 else 0), high + room], row=row, col=1)  # fmt: skip
    made.update_xaxes(tickvals=list(range(len(names))), ticktext=[for_plotly(name, 30) for name in names])
    return made


def _intervals(
    made: go.Figure, stations: list[VariantSummary], removal_path: RemovalPath, low: float, high: float
) -> tuple[float, float]:
    """Draw the intervals of the differences and the margin in the first row, and return their range."""
    margin = removal_path.margin if removal_path.direction == "minimize" else -removal_path.margin
    made.add_hline(margin, line={"color": ink(), "width": 1, "dash": "dash"}, row=1, col=1,
                   annotation={"text": f"margin {removal_path.margin:g}"})  # fmt: skip
    ends = [low, high, margin]
    for place, standing in enumerate(stations):
        paired = standing.difference
        if paired is not None and paired.low is not None and paired.high is not None:
            made.add_scatter(
                x=[place + 0.34] * 2, y=[paired.low, paired.high], mode="lines+markers", hoverinfo="skip",
                line={"color": ink(), "width": 1.5}, marker={"symbol": "line-ew-open", "size": 8, "color": ink()},
                row=1, col=1,
            )  # fmt: skip
            ends += [paired.low, paired.high]
    return min(ends), max(ends)


def _difference(standing: VariantSummary) -> float | None:
    return 0.0 if standing.difference is None else standing.difference.difference


def _number(title: str, value: float, signed: bool = False) -> str:
    if title.endswith("baseline"):
        return f"{value:+.3g}" if signed else f"{value:.3g}"
    said = arithmetic(abs(value)) if title.startswith("FLOP") else count(round(abs(value)))
    return ("+" if value > 0 else "−" if value < 0 else "") * signed + said


def _alt(removal_path: RemovalPath) -> str:
    steps = [
        f"{step.switch}={step.setting} to {count(step.standing.parameters)} parameters and a difference of "
        f"{_difference(step.standing) or 0.0:+.3g}"
        for step in removal_path.steps
    ]
    return f"Waterfall of the path from {count(removal_path.baseline.parameters)} parameters: {'; '.join(steps)}"[:1000]


def _pictures(removal_path: RemovalPath, record: StudyRecord) -> None:
    """Show the block at each step, compared with the previous step."""
    st.subheader("The block at each step", anchor=False)
    models = {variant.name: variant.spec["model"] for variant in record.variants}
    said = [record.baseline, *(f"{step.switch}={step.setting}" for step in removal_path.steps)]
    models_on_path = [models[standing.variant] for standing in _stations(removal_path)]
    files: dict[str, Maker] = {}
    pictures = []
    for number, (standing, label) in enumerate(zip(_stations(removal_path), said, strict=True)):
        versus = (f"step {number - 1}", models_on_path[number - 1]) if number else None
        caption = f"{number}. {label}, {count(standing.parameters)} parameters"
        name = f"step {number}"
        pictures.append(BlockPicture(name, models_on_path[number], caption, versus, standing.variant))
        files |= block_files(f"block_{number}", name, models_on_path[number], versus)
    block_pictures(pictures, ABREAST)
    export(files, "blocks")

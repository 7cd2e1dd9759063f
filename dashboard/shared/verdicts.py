"""The answer on a page: headline, counts that filter, rows that are a forest plot, trust, and one verdict explained."""

from __future__ import annotations

import base64
import html

import pandas as pd
import streamlit as st

from ablate.analysis.answer import Answer, AnswerRow, GroupKey
from ablate.analysis.numbers import MISSING, fixed, percent
from ablate.analysis.report import StudyReport
from ablate.analysis.why import why
from ablate.render.figures.style import Palette
from ablate.render.interval import Axis, interval_svg
from dashboard.shared.exports import dark
from dashboard.shared.frame import link
from dashboard.shared.text import escape, prose

WIDTH, HEIGHT = 244, 26
"""Pixels of the picture of an interval."""
LOOKS: dict[GroupKey, str] = {
    "better": "better",
    "can go": "not needed",
    "as good": "not needed",
    "must stay": "needed",
    "worse": "needed",
    "not known": "undecided",
    "unproven": "undecided",
    "lost": "diverged",
    "running": "undecided",
    "no answer": "undecided",
}
"""Groups to the verdict in whose colour and mark they are drawn."""
ICONS = {"ok": ":material/check_circle:", "weak": ":material/info:", "void": ":material/warning:"}
WHY = "why"
"""The parameter of the address that names the variant whose verdict is explained."""


def show_answer(report: StudyReport, answer: Answer) -> None:
    """Draw the answer of a study; a click on a row explains its verdict."""
    st.subheader(prose(" ".join(answer.headline)), anchor=False)
    if answer.groups:
        shown = _chosen_groups(answer)
        rows = [(group.key, row) for group in answer.groups if group.key in shown for row in group.rows]
        with st.container(key="answer-table"):
            picked = _table(answer, rows)
        with st.container(key="answer-cards"):
            st.html(cards(answer, rows))
            asked = st.selectbox("Explain the verdict on", [row.variant for _, row in rows], index=None, key=WHY,
                                 bind="query-params", placeholder="a variant")  # fmt: skip
        _explain(report, picked or asked)
    if answer.scale:
        st.markdown("\n".join(["**Does it survive scale?**\n", *(f"- {prose(line)}" for line in answer.scale)]))
    with st.container(border=True):
        st.markdown("**May I believe it?**")
        st.markdown("  \n".join(f"{ICONS[line.level]} {line.level}: {prose(line.text)}" for line in answer.trust))


def _chosen_groups(answer: Answer) -> set[GroupKey]:
    """The groups to show: those whose counts are selected, all if none is."""
    counts = {group.key: len(group.rows) for group in answer.groups}
    chosen = st.pills(
        "Verdicts", list(counts), selection_mode="multi", format_func=lambda key: f"{counts[key]} {key}",
        key="verdicts", bind="query-params", label_visibility="collapsed",
    )  # fmt: skip
    return {key for key in counts if key in (chosen or counts)}


def cards(answer: Answer, rows: list[tuple[GroupKey, AnswerRow]]) -> str:
    """The rows as HTML for a narrow screen, where CSS shows them instead of the table: a heading for each group."""
    axis, parts, titles = Axis.of(answer), [], {group.key: group.title for group in answer.groups}
    for number, (key, row) in enumerate(rows):
        if not number or rows[number - 1][0] != key:
            parts.append(f"<h4>{html.escape(titles[key])}</h4>")
        change = percent(row.parameter_change)
        size = "" if change in ("0%", MISSING) else f", {change} parameters"
        bound = f"{row.bound_text}{'' if row.jointly or row.bound is None else ' *'}{size}"
        warning = f" ({row.warning})" if row.warning else ""
        parts.append(
            f"<div><b>{html.escape(row.words + warning)}</b><span>{html.escape(bound)}</span>"
            f'<img alt="" src="{_picture(axis, key, row)}"></div>'
        )
    return "".join(parts)


def _table(answer: Answer, rows: list[tuple[GroupKey, AnswerRow]]) -> str | None:
    """The rows with their intervals; the variant of the row that is selected."""
    axis = Axis.of(answer)
    table = pd.DataFrame(
        {
            "verdict": [row.verdict for _, row in rows],
            "change": [f"{row.words} ({row.warning})" if row.warning else row.words for _, row in rows],
            "interval": [_picture(axis, key, row) for key, row in rows],
            "bound": [f"{row.bound_text}{'' if row.jointly or row.bound is None else ' *'}" for _, row in rows],
            "difference": [fixed(row.difference, answer.decimals, sign=True) for _, row in rows],
            "parameters": [percent(row.parameter_change) for _, row in rows],
            "variant": [row.variant for _, row in rows],
        }
    )
    text = st.column_config.TextColumn
    picked = st.dataframe(
        table,
        key="answer-rows",
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        height="content" if len(rows) <= 30 else "auto",
        column_config={
            "verdict": text(width=92),
            "change": text(width=250),
            "interval": st.column_config.ImageColumn(
                f"0 | margin {answer.margin:g}: worse",
                width=WIDTH + 16,
                help="95 % interval of the difference; line: no difference, dashes: the margin",
            ),
            "bound": text(width=92, help="One-sided 95 % bound that the verdict rests on; *: true alone, not jointly"),
            "difference": text(width=84, help=f"{answer.metric} minus that of the baseline, paired by {answer.unit}"),
            "parameters": text(width=84),
        },
        alt=f"The answer: {len(rows)} variants with verdicts, 95 % intervals and bounds",
    )
    chosen = picked["selection"]["rows"]
    return str(table["variant"][chosen[0]]) if chosen and chosen[0] < len(table) else None


def _picture(axis: Axis, key: GroupKey, row: AnswerRow) -> str:
    palette = Palette(dark())
    look, size = palette.verdict(LOOKS[key]), (WIDTH, HEIGHT)
    svg = interval_svg(axis, row, colour=look.colour, ink=palette.grey, mark=look.mark, size=size)
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _explain(report: StudyReport, chosen: str | None) -> None:
    """One verdict alone: its seeds as links to the trials, what supports it, what would change it."""
    if chosen is None:
        st.caption("Select a row to see its seeds, what supports its verdict and what would change it.")
        return
    explained = why(report, chosen)
    with st.container(border=True):
        st.markdown(f"**{escape(explained.row.words)}**: {prose(explained.sentence)}")
        with st.container(horizontal=True):
            for seed, value in explained.seeds.items():
                link("trial", f"seed {seed}: {value:+.3g}", variant=chosen, seed=str(seed))
        st.markdown("\n".join(f"- **{escape(label)}** {prose(text)}" for label, text in explained.facts.items()))
        with st.container(horizontal=True):
            link("curves", "Its curves", variants=[report.record.baseline, chosen])
            link("compare", "What differs in the spec", variants=[report.record.baseline, chosen])

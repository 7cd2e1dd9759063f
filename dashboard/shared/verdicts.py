"""The answer on a page: headline, counts that filter, rows that are a forest plot, trust, and one verdict explained."""

from __future__ import annotations

import base64
import html

import streamlit as st

from ablate.analysis.answer import Answer, AnswerRow, GroupKey
from ablate.analysis.numbers import fixed, percent
from ablate.analysis.rows import SELECTED
from ablate.analysis.text import plural
from ablate.analysis.warnings import StudyWarning
from ablate.render.figures.style import Palette
from ablate.render.interval import Axis, axis_svg, interval_svg
from dashboard.shared.evidence import WHY
from dashboard.shared.exports import dark
from dashboard.shared.frame import address
from dashboard.shared.text import prose

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
    "running": SELECTED,
    "no answer": "undecided",
}
"""Groups to the verdict in whose colour and mark they are drawn."""
MOST = 60
"""Rows at a time."""
MOST_LIMITS = 2
"""What limits an answer that is shown before a click."""
SIGNS = {"square": "■", "diamond": "◆", "triangle-up": "▲", "triangle-down": "▼"}
"""Vega's names of marks to characters; others are circles."""


def show_answer(answer: Answer) -> None:
    """Draw the answer of a study; a click on a change shows the evidence."""
    st.title(prose(" ".join(answer.headline)), anchor=False)
    if answer.groups:
        shown = _chosen_groups(answer)
        rows = [(group.key, row) for group in answer.groups if group.key in shown for row in group.rows]
        st.html(table(answer, _page(rows)))
        if any(_holds_alone(row) for _, row in rows):
            st.caption("° holds alone, not jointly with the other verdicts (Holm's procedure)")
    if answer.scale:
        st.markdown("\n".join(["**Does it survive scale?**\n", *(f"- {prose(line)}" for line in answer.scale)]))
    _trust([line for line in answer.trust if line.level != "ok"])


def _trust(limits: list[StudyWarning]) -> None:
    """What limits the answer, in one strip: the most serious lines, the others on a click."""
    first, more = limits[:MOST_LIMITS], limits[MOST_LIMITS:]
    if first:
        st.warning(prose("; ".join(line.text for line in first)), icon=":material/warning:")
    if more:
        with st.expander(f"{plural(len(more), 'more limit')} of this answer", key="limits"):
            st.markdown("\n".join(f"- {prose(line.text)}" for line in more))


def _page(rows: list[tuple[GroupKey, AnswerRow]]) -> list[tuple[GroupKey, AnswerRow]]:
    """The rows of the chosen page: all, unless they are many."""
    pages = -(-len(rows) // MOST)
    if pages < 2:
        return rows
    first = MOST * (int(st.number_input("Page", 1, pages, key="part", bind="query-params", width=140)) - 1)
    st.caption(f"{first + 1:,} to {min(first + MOST, len(rows)):,} of {len(rows):,} variants, by verdict")
    return rows[first : first + MOST]


def _chosen_groups(answer: Answer) -> set[GroupKey]:
    """The groups to show: those whose counts are selected, all if none is."""
    counts = {group.key: len(group.rows) for group in answer.groups}
    chosen = st.pills(
        "Verdicts", list(counts), selection_mode="multi", format_func=lambda key: f"{counts[key]} {key}",
        key="verdicts", bind="query-params", label_visibility="collapsed",
    )  # fmt: skip
    return {key for key in counts if key in (chosen or counts)}


def table(answer: Answer, rows: list[tuple[GroupKey, AnswerRow]]) -> str:
    """The rows as an HTML table in which each change is a link to its evidence; narrow screens show fewer columns."""
    axis = Axis.of(answer)
    titles = ["verdict", "change", f"Δ {answer.metric}", _scale(axis), f"95 % bound, by {answer.unit}", "parameters"]
    kinds = ["verdict", "change", "number", "interval", "number wide", "number wide"]
    head = "".join(f'<th class="{kind}">{title}</th>' for kind, title in zip(kinds, titles, strict=True))
    body = "".join(
        "<tr>" + "".join(f'<td class="{kind}">{cell}</td>' for kind, cell in zip(kinds, cells, strict=True)) + "</tr>"
        for cells in (_cells(answer, axis, key, row) for key, row in rows)
    )
    told = f"The answer: {len(rows)} variants with verdicts, 95 % intervals and bounds"
    return f'<table class="answer" aria-label="{told}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _cells(answer: Answer, axis: Axis, key: GroupKey, row: AnswerRow) -> tuple[str, ...]:
    look = Palette(dark()).verdict(LOOKS[key])
    mark, alone = SIGNS.get(look.mark, "●"), "°" if _holds_alone(row) else ""
    word = "running" if key == "running" else row.verdict
    name = "" if row.variant == row.words else f" <code>{html.escape(row.variant)}</code>"
    warning = f" <em>{html.escape(row.warning)}</em>" if row.warning else ""
    href = html.escape(address(**{WHY: row.variant}))
    return (
        f'<b style="color: {look.colour}">{mark} <span>{html.escape(word)}{alone}</span></b>',
        f'<a href="{href}">{html.escape(row.words)}</a>{name}{warning}',
        f"<b>{fixed(row.difference, answer.decimals, sign=True)}</b>",
        f'<img alt="" src="{_picture(axis, key, row)}">',
        html.escape(row.bound_text),
        percent(row.parameter_change),
    )


def _holds_alone(row: AnswerRow) -> bool:
    """Whether a verdict does not hold jointly with the others."""
    return row.bound is not None and not row.jointly


def _scale(axis: Axis) -> str:
    """Zero and the margin above their lines, as a picture."""
    return f'<img alt="0 and the margin {axis.margin:g}" src="{_encoded(axis_svg(axis, Palette(dark()).ink, WIDTH))}">'


def _picture(axis: Axis, key: GroupKey, row: AnswerRow) -> str:
    palette = Palette(dark())
    look, size = palette.verdict(LOOKS[key]), (WIDTH, HEIGHT)
    svg = interval_svg(axis, row, colour=look.colour, ink=palette.grey, mark=look.mark, size=size)
    return _encoded(svg)


def _encoded(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()

"""Studies: all of the store, found by name, question, tag or state; one is picked to be looked at."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from ablate.analysis.overview import Overview, read_overview
from ablate.errors import NotFoundError
from ablate.store import Mark, StudySummary
from shared.exports import export, table_files
from shared.frame import STUDY, link, no_study_yet
from shared.marks import edit_mark
from shared.numbers import arithmetic, duration, parameters
from shared.store import LIVE, complete, stamp, store, studies
from shared.text import escape

PAGE = 15
"""Rows at a time: what they show is read study by study."""
STATES = ("all", "running", "complete", "incomplete", "with failures")


def show() -> None:
    """Draw the page."""
    st.header("Studies")
    try:
        listed = studies()
    except NotFoundError:
        listed = ()
    if not listed:
        no_study_yet()
        st.fragment(_await_first, run_every=LIVE)()
        return
    search, states, stars = st.columns([4, 4, 1], vertical_alignment="bottom")
    words = search.text_input(
        "Search", key="find", bind="query-params", placeholder="words of a name or a question, or a tag", live=True
    )
    state = states.segmented_control("State", STATES, default="all", key="state", bind="query-params", required=True)
    starred = stars.toggle("Starred", key="starred", bind="query-params")
    running = any(not complete(study) for study in listed)
    st.fragment(_table, run_every=LIVE if running else None)(str(words or ""), str(state), starred)


def _await_first() -> None:
    try:
        if studies():
            st.rerun()
    except NotFoundError:
        return


def _table(words: str, state: str, starred: bool) -> None:
    marks = store().marks.all("study")
    shown = [study for study in studies() if _fits(study, marks.get(study.name, Mark()), words, state)]
    shown = [study for study in shown if not starred or marks.get(study.name, Mark()).starred]
    st.caption(f"{len(shown):,} of {len(studies()):,} studies, the latest first")
    pages = -(-len(shown) // PAGE)
    page = 1
    if pages > 1:
        page = int(st.number_input("Page", 1, pages, key="page", bind="query-params", width=140))
    rows = shown[(page - 1) * PAGE : page * PAGE]
    if not rows:
        st.info("No study fits. Search for less.")
        return
    table = pd.DataFrame([_row(study, marks.get(study.name, Mark())) for study in rows])
    picked = st.dataframe(
        table,
        key="studies",
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        column_config={
            "progress": st.column_config.ProgressColumn("progress", min_value=0, max_value=1, format="percent"),
            "updated": st.column_config.DatetimeColumn("updated", format="YYYY-MM-DD HH:mm"),
            "★": st.column_config.TextColumn(width=40),
            "question": st.column_config.TextColumn(width="medium"),
        },
        placeholder="-",
        alt=f"Studies with their state, progress, best and simplest variant and cost; {len(rows)} rows",
    )
    chosen = picked["selection"]["rows"]
    study = rows[chosen[0]] if chosen and chosen[0] < len(rows) else _current(rows)
    _details(study)
    export(table_files("studies", table), "studies")


def _fits(study: StudySummary, mark: Mark, words: str, state: str) -> bool:
    said = f"{study.name} {study.question} {' '.join(mark.tags)}".casefold()
    if not all(word in said for word in words.casefold().split()):
        return False
    return {
        "all": True,
        "running": study.running > 0,
        "complete": complete(study),
        "incomplete": not complete(study),
        "with failures": study.failed + study.diverged > 0,
    }[state]


def _current(rows: list[StudySummary]) -> StudySummary:
    """The study that the address names, if it is among the rows; else the first."""
    return next((row for row in rows if row.name == st.session_state.get(STUDY)), rows[0])


@st.cache_resource(show_spinner=False, max_entries=500)
def _overview(study: str, at: tuple[object, ...]) -> Overview:
    return read_overview(store(), study)


def state_of(study: StudySummary) -> str:
    """How far a study is, in a word."""
    if complete(study):
        return "complete"
    return "running" if study.running else "failed trials" if study.failed else "waiting"


def _row(study: StudySummary, mark: Mark) -> dict[str, object]:
    overview = _overview(study.name, stamp(study.name))
    ended = study.finished + study.diverged
    return {
        "★": "★" * mark.starred,
        "study": study.name,
        "question": study.question,
        "state": state_of(study),
        "progress": ended / study.planned if study.planned else 0.0,
        "trials": f"{ended}/{study.planned}",
        "diverged": study.diverged,
        "failed": study.failed,
        "best": overview.best,
        "simplest": overview.simplest,
        "cost": duration(overview.seconds),
        "left": duration(overview.seconds_left) if not complete(study) else None,
        "updated": study.updated_at,
        "tags": ", ".join(mark.tags),
    }


def _details(study: StudySummary) -> None:
    overview = _overview(study.name, stamp(study.name))
    with st.container(border=True):
        st.subheader(escape(study.name), anchor=False)
        st.markdown(escape(study.question))
        facts = st.container(horizontal=True)
        facts.metric("State", state_of(study), width="content")
        facts.metric("Trials ended", f"{study.finished + study.diverged} of {study.planned}", width="content")
        facts.metric("Training so far", duration(overview.seconds), arithmetic(overview.flops), delta_color="off",
                     delta_arrow="off", width="content")  # fmt: skip
        if overview.best is not None and overview.best_value is not None:
            facts.metric(
                f"Best {escape(overview.metric)}", f"{overview.best_value:.4g}", escape(overview.best),
                delta_color="off", delta_arrow="off", width="content",
            )  # fmt: skip
        facts.metric(
            "Simplest that will do", parameters(overview.simplest_parameters), escape(overview.simplest),
            delta_color="off", delta_arrow="off", width="content",
        )  # fmt: skip
        if study.diverged or study.failed:
            st.warning(f"{study.diverged} trials diverged, {study.failed} failed. The answer says where and why.")
        edit_mark("study", study.name)
        with st.container(horizontal=True):
            for page, label in (("answer", "Answer"), ("curves", "Curves"), ("compare", "Compare"), ("trial", "Trial")):
                link(page, label, **{STUDY: study.name})

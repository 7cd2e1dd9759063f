"""Run: continue a study, add seeds, stop it, and read the log of runs that this dashboard started."""

from __future__ import annotations

import platform
import re

import streamlit as st

from ablate.analysis.continuing import deciding_seeds
from ablate.analysis.numbers import duration
from ablate.analysis.report import StudyReport
from ablate.analysis.text import plural
from ablate.errors import NotFoundError
from ablate.spec.annotations import STUDY_NAME
from dashboard.shared.exports import code
from dashboard.shared.frame import begin_page, link
from dashboard.shared.running import (
    Run,
    continuing_arguments,
    last_run,
    may_run,
    show_command,
    start,
    start_button,
    stop_button,
)
from dashboard.shared.store import LIVE, complete, report, store, summary
from dashboard.shared.text import escape, prose

MORE = 4
"""Number of further seeds that the field suggests if the number that would decide is unknown."""
HERE_ONLY = (
    "Studies are started and stopped here only if the dashboard listens on this machine alone "
    "(`ablate dashboard` without `--host`) and is opened on it."
)


def show() -> None:
    """Draw the page."""
    study = begin_page("Run")
    _study(study)
    st.header("Log", anchor=False)
    run = last_run(study)
    if run is None:
        st.caption("This dashboard has not started this study yet. A button here or on the page of the designer does.")
    else:
        st.fragment(_log, run_every=LIVE if run.alive else None)(run)


def _study(study: str) -> None:
    counts = summary(study)
    if counts is None:
        return
    study_report = report(study)
    _driver(study)
    run = last_run(study)
    busy = run is not None and run.alive
    if complete(counts):
        st.caption(f"All {counts.planned:,} trials have ended.")
    else:
        with st.container(border=True):
            st.markdown("**Finish or try again**")
            left = counts.planned - counts.finished - counts.diverged - counts.pruned
            st.caption(f"{left:,} of {counts.planned:,} trials are left. Ended trials are not trained again.")
            show_command(study)
            if may_run():
                start_button("Resume", "play_arrow", lambda: start(study, continuing_arguments(study)), "resume",
                       disabled=busy or not STUDY_NAME.fits(study))  # fmt: skip
    if seeds := _more_seeds(study_report):
        with st.container(border=True):
            st.markdown("**Add seeds**")
            asked = st.text_input(
                "Seeds", seeds, key=f"seeds-of-{study}", width=200,
            )  # fmt: skip
            wanted = str(asked or seeds).strip()
            st.markdown(prose(meaning(wanted, study_report)))
            show_command(study, wanted)
            st.caption("`ablate plan` takes the same options and shows their cost before anything is trained.")
            if may_run():
                start_button("Add seeds", "add", lambda: start(study, continuing_arguments(study, wanted)), "add-seeds",
                       disabled=busy or not STUDY_NAME.fits(study))  # fmt: skip
    if not may_run():
        st.caption(HERE_ONLY)
    link("answer", "Answer")


def meaning(wanted: str, study_report: StudyReport) -> str:
    """What a number of seeds asks for, in how many more trials and how long, in a sentence; else how to write one."""
    numbers = re.fullmatch(r"(\d{1,6})(?::(\d{1,6}))?", wanted)
    if numbers is None:
        return "Write `4` for four seeds of each variant, or `4:8` for at least four and up to eight of the undecided."
    least, most = int(numbers[1]), int(numbers[2] or numbers[1])
    rows = study_report.variants
    undecided = [row.name for row in rows if row.verdict is not None and row.verdict.word == "undecided"]
    extended = {*undecided, study_report.record.baseline} if undecided and most > least else set()
    more = sum(max(0, (most if row.name in extended else least) - len(row.planned)) for row in rows)
    seconds, ended = sum(row.seconds or 0.0 for row in rows), sum(len(row.finished) for row in rows)
    took = f", about {duration(more * seconds / ended)} of training" if seconds and more else ""
    upper = f", and up to {most} of the {len(undecided)} undecided and of the baseline" if extended else ""
    return f"At least {plural(least, 'seed')} of each variant{upper}: {plural(more, 'more trial')} at most{took}."


def _more_seeds(study_report: StudyReport) -> str:
    """Default of the field: the seeds that would decide, otherwise a few more than there are; empty if unknown."""
    seeds = study_report.record.space.get("design", {}).get("seeds")
    if decisive := deciding_seeds(study_report):
        return decisive
    if isinstance(seeds, int):
        return (
            f"{min(max(seeds, 2), 10)}:{max(seeds, 2) + MORE}"
            if study_report.record.traits.adds_seeds
            else f"{seeds + 1}"
        )
    return ""


def _driver(study: str) -> None:
    """Show which driver runs the study now."""
    try:
        drivers = [driver for driver in store().activity().drivers if driver.study == study and driver.alive]
    except NotFoundError:
        return
    for driver in drivers:
        place = "this machine" if driver.host == platform.node() else driver.host
        st.info(
            f"Process {driver.pid} on {escape(place)} trains it: {driver.settled:,} of {driver.planned:,} trials are "
            f"done, {driver.running:,} run.",
            icon=":material/directions_run:",
        )


def _log(run: Run) -> None:
    alive = run.alive
    if not alive and st.session_state.get("ran") == run.study:
        st.session_state["ran"] = None
        st.rerun()
    if alive:
        st.session_state["ran"] = run.study
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge("runs" if alive else "has ended", color="green" if alive else "gray")
        st.caption(escape(f"process {run.pid}, started {run.started.replace('T', ' ')}"), width="content")
        if alive:
            stop_button(run)
    code(" ".join(run.command))
    code(run.tail().strip() or "No output yet.")
    st.caption(escape(f"The log is {run.log}"))

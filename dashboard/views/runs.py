"""Run: continue a study, add seeds, stop it, and read the log of runs that this dashboard started."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import streamlit as st

from ablate.analysis.changes import variant_titles
from ablate.analysis.next_steps import deciding_seeds
from ablate.analysis.numbers import MISSING, duration, fixed, plural
from ablate.analysis.report import StudyReport
from ablate.errors import NotFoundError
from ablate.render.blocks import Grid
from ablate.spec.annotations import STUDY_NAME
from ablate.store import StudyRecord, TrialRecord, TrialState
from ablate.store.records import StudySummary
from dashboard.shared.exports import code, is_narrow, show_grid
from dashboard.shared.frame import address, begin_page, link
from dashboard.shared.past import show_past
from dashboard.shared.results import answer
from dashboard.shared.running import (
    Run,
    continuing_arguments,
    last_run,
    may_run,
    show_command,
    show_next_steps,
    start,
    start_button,
    stop_button,
)
from dashboard.shared.store import LIVE, complete, ended, record, report, store, summary
from dashboard.shared.text import escape, prose
from dashboard.views import Entry

ENTRY = Entry("Run", ":material/play_circle:", "This study", 110)

MORE, MOST, MOST_LAST = 4, 100_000, 8
"""Seeds that the controls suggest further if none are known to decide, the most they take, and trials in the list."""
HERE_ONLY = (
    "Studies are started and stopped here only if the dashboard listens on this machine alone "
    "(`ablate dashboard` without `--host`) and is opened on it."
)


def show() -> None:
    """Draw the page."""
    study = begin_page("Run")
    trials = tuple(store().trials([trial.key for trial in record(study).planned]).values())
    _study(study, trials)
    if (run := last_run(study)) is not None:
        st.header("Log", anchor=False)
        st.fragment(_log, run_every=LIVE if run.alive else None)(run)
    _last_trials(study, trials)
    _where_it_ran(trials)
    if trials:
        past = st.expander("Throughput, failures and retries", key="past", on_change="rerun", bind="query-params")
        if past.open:
            with past:
                show_past(study)


def _study(study: str, trials: Sequence[TrialRecord]) -> None:
    counts = summary(study)
    if counts is None:
        return
    study_report = report(study)
    st.markdown(f"**{prose(progress_words(counts, study_report.progress.states[TrialState.FAILED]))}**")
    drivers = _drivers(study)
    st.caption(prose(facts(record(study), trials, counts)))
    if not drivers and complete(counts):
        st.markdown(f"[Answer]({address('answer')}): {prose(answer(study).headline[0])}")
    run = last_run(study)
    busy = run is not None and run.alive
    if not drivers and complete(counts):
        show_next_steps(answer(study))
    elif not drivers:
        with st.container(border=True):
            st.markdown("**Finish or try again**")
            left = counts.planned - ended(counts)
            st.caption(f"{left:,} of {counts.planned:,} trials are left. Ended trials are not trained again.")
            show_command(study)
            if may_run():
                start_button("Resume", "play_arrow", lambda: start(study, continuing_arguments(study)), "resume",
                       disabled=busy or not STUDY_NAME.fits(study))  # fmt: skip
    if not drivers and isinstance(study_report.record.space.get("design", {}).get("seeds"), int):
        _seeds(study_report, counts, busy)
    if not may_run():
        st.caption(HERE_ONLY)
    if drivers or busy:
        link("cluster", "Now running")


def progress_words(counts: StudySummary, failed: int) -> str:
    """How far a study is, in a sentence."""
    over, planned = ended(counts), counts.planned
    said = (
        f"All {plural(planned, 'trial')} have ended"
        if over == planned
        else f"{over:,} of {planned:,} trials have ended"
    )
    return f"{said}, {f'{failed:,}' if failed else 'none'} failed."


def facts(study_record: StudyRecord, trials: Sequence[TrialRecord], counts: StudySummary) -> str:
    """What the study trains, and what it has cost, in a sentence."""
    seeds = Counter(trial.variant for trial in study_record.planned).values()
    each = " to ".join(map(str, dict.fromkeys((min(seeds, default=0), max(seeds, default=0)))))
    trained = sum(trial.seconds for trial in trials)
    said = f"{plural(counts.variants, 'variant')}, {each} seed{'s' * (each != '1')} each"
    if times := [time for trial in trials for time in (trial.started_at, trial.finished_at) if time is not None]:
        took = (max(times) - min(times)).total_seconds()
        at_once = ", several at once" * (trained > took)
        said += f"; {duration(trained)} of training within {duration(took)}{at_once}"
    return f"{said}."


def _last_trials(study: str, trials: Sequence[TrialRecord]) -> None:
    """The trials that ended last, each a link to its page."""
    variants = {trial.key: trial.variant for trial in record(study).planned}
    ended_at = {trial.key: trial.finished_at for trial in trials if trial.finished_at is not None}
    last = sorted((trial for trial in trials if trial.key in ended_at), key=lambda one: ended_at[one.key], reverse=True)
    if not last:
        return
    titles, metric = variant_titles(record(study)), record(study).objective["metric"]
    st.header("Last trials", anchor=False)
    shown = last[: MOST_LAST // 2 if is_narrow() else MOST_LAST]
    rows = tuple(
        (f"{titles.get(variants[one.key], variants[one.key])}, seed {one.seed}", str(one.state),
         fixed(one.metrics.get(metric), 4), duration(one.seconds),
         f"{ended_at[one.key].astimezone(UTC):%Y-%m-%d %H:%M:%S}")
        for one in shown
    )  # fmt: skip
    show_grid(Grid(("trial", "state", metric, "training", "ended (UTC)"), (rows,), frozenset({0, 1, 4})),
              "The trials that ended last", [address("trial", trial=one.key) for one in shown])  # fmt: skip
    link("trials", f"All {plural(len(trials), 'trial')}")


def _where_it_ran(trials: Sequence[TrialRecord]) -> None:
    """Where its trials ran and when, each place in a row."""
    ran: dict[tuple[str, str, str], list[TrialRecord]] = {}
    for trial in trials:
        if (where := trial.environment) is not None:
            version = where.versions.get("ablate-blocks", MISSING)
            ran.setdefault((where.device or MISSING, where.host or MISSING, version), []).append(trial)
    if not ran:
        return
    st.header("Where it ran", anchor=False)
    rows = tuple((*place, str(len(of)), *_span(of)) for place, of in ran.items())
    titles = ("device", "host", "version of ablate", "trials", "from (UTC)", "to (UTC)")
    show_grid(Grid(titles, (rows,), frozenset({0, 1, 2, 4, 5})), "Where the trials ran, and when")


def _span(trials: Sequence[TrialRecord]) -> tuple[str, str]:
    """When the first of these trials began and the last one ended."""
    began = min((trial.started_at for trial in trials if trial.started_at is not None), default=None)
    over = max((trial.finished_at for trial in trials if trial.finished_at is not None), default=None)
    return _minute(began), _minute(over)


def _minute(at: datetime | None) -> str:
    return MISSING if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"


def _seeds(study_report: StudyReport, counts: StudySummary, busy: bool) -> None:
    """Controls for a number of seeds of one's own, and a warning if the answer expects none to decide anything."""
    study = counts.name
    idle = complete(counts) and not any("--seeds" in step.arguments for step in answer(study).next)
    extends = study_report.record.traits.adds_seeds and not study_report.rule.relative
    planned = len(study_report.baseline.planned)
    first, _, last = (deciding_seeds(study_report) or f"{max(planned, 2)}:{max(planned, 2) + MORE}").partition(":")
    with st.expander("Another number of seeds", icon=":material/add:", key="seeds"):
        if idle:
            st.warning("The answer names no number of seeds that would decide what is open: more seeds may change "
                       "nothing.", icon=":material/info:")  # fmt: skip
        row = st.container(horizontal=True, vertical_alignment="bottom")
        least = int(row.number_input("Seeds of each variant", 1, MOST, int(first), key=f"least-of-{study}", width=200))
        most = least
        if extends:
            most = int(row.number_input("Of the undecided, up to", 1, MOST, int(last or first), key=f"most-of-{study}",
                                        width=200))  # fmt: skip
        wanted = f"{least}:{most}" if most > least else str(least)
        st.markdown(prose(meaning(least, most, study_report)))
        show_command(study, wanted)
        st.caption("`ablate plan` takes the same options and shows their cost before anything is trained.")
        if may_run():
            start_button("Add seeds", "add", lambda: start(study, continuing_arguments(study, wanted)), "add-seeds",
                   disabled=busy or not STUDY_NAME.fits(study))  # fmt: skip


def meaning(least: int, most: int, study_report: StudyReport) -> str:
    """Which seeds two numbers ask for, in how many more trials and how long, in a sentence.

    Args:
        least: Seeds of each variant.
        most: Seeds of the undecided ones and of the baseline, where that is more.
    """
    rows, planned = study_report.variants, study_report.baseline.planned
    undecided = [row.name for row in rows if row.verdict is not None and row.verdict.word == "undecided"]
    extended = {*undecided, study_report.record.baseline} if undecided and most > least else set()
    more = sum(max(0, (most if row.name in extended else least) - len(row.planned)) for row in rows)
    seconds, known = sum(row.seconds or 0.0 for row in rows), sum(len(row.finished) for row in rows)
    took = f", about {duration(more * seconds / known)} of training" if seconds and known and more else ""
    upper = f", and up to {most} of the {len(undecided)} undecided and of the baseline" if extended else ""
    begin, end = max(planned) + 1, min(planned) + (most if extended else least) - 1
    which = f"seed {end} is new" if end == begin else f"seeds {begin} to {end} are new"
    new = which if end >= begin else "no seed is new"
    return (
        f"At least {plural(least, 'seed')} of each variant{upper}; {new}: {plural(more, 'more trial')} at most{took}."
    )


def _drivers(study: str) -> int:
    """Show which drivers run the study now; how many there are."""
    try:
        drivers = [driver for driver in store().activity().drivers if driver.study == study and driver.alive]
    except NotFoundError:
        return 0
    for driver in drivers:
        place = "this machine" if driver.host == platform.node() else driver.host
        st.info(
            f"Process {driver.pid} on {escape(place)} trains it now: {plural(driver.running, 'trial')} at once.",
            icon=":material/directions_run:",
        )
    return len(drivers)


def _log(run: Run) -> None:
    alive = run.alive
    if not alive and st.session_state.get("ran") == run.study:
        st.session_state["ran"] = None
        st.rerun()
    if alive:
        st.session_state["ran"] = run.study
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge("runs" if alive else "has ended", color="blue" if alive else "gray")
        st.caption(escape(f"process {run.pid}, started {run.started.replace('T', ' ')}"), width="content")
        if alive:
            stop_button(run)
    code(" ".join(run.command))
    code(run.tail().strip() or "No output yet.")
    st.caption(escape(f"The log is {run.log}"))

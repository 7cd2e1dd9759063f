"""Now running: which trials run where, how fast trials end, which ones failed or were restarted."""

from __future__ import annotations

import platform
from collections.abc import Mapping

import pandas as pd
import psutil
import streamlit as st

from ablate.analysis.changes import variant_titles
from ablate.analysis.curves import Band
from ablate.analysis.numbers import count, duration, plural, scaled
from ablate.analysis.status import Status, StudyStatus, WorkerFailure, WorkerLoad, read_workers, status_of
from ablate.render.figures.curves import draw_bands
from ablate.render.figures.style import Palette, Spec
from ablate.store.records import RunningTrial
from dashboard.shared.exports import (
    Card,
    Maker,
    cards,
    chart,
    export,
    figure_files,
    grid_of_texts,
    is_narrow,
    show_grid,
    show_table,
    table_files,
)
from dashboard.shared.frame import STUDY, address, chosen_study, link
from dashboard.shared.store import LIVE, ended, location, stamp, store, studies, summary
from dashboard.shared.store import record as read_record
from dashboard.shared.text import escape, fitting, prose
from dashboard.views import Entry

ENTRY = Entry("Now running", ":material/dns:", "All studies", 140)

MOST_LINKS = 6
UNITS = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
"""Seconds in each unit of the time axis; the first unit that the whole range exceeds is used."""
MOST_LAST, GIB = 3, 2.0**30
"""Studies that ran last and are shown."""
MOST_DEVICES, MOST_POINTS = 12, 300
"""Maximum numbers of lines in the figure of throughput, and of points in each."""


def show() -> None:
    """Draw the page."""
    study = chosen_study()
    st.title("Now running", anchor=False)  # of all studies
    st.fragment(_live, run_every=LIVE)(study)
    _past(study)


def _live(study: str) -> None:
    status = status_of(store().activity())
    if not status.studies and not status.running:
        st.info("No study runs now. `ablate study FILE` starts one, here or on a cluster with `--engine ray`.")
        with st.container(horizontal=True):
            link("design", "Design a space to train")
            link("runs", f"Continue {study}")
        _last(status)
        _machine()
        return
    for one in status.studies:
        _driven(one, status)
    _running(status)
    _machine()


def _running(status: Status) -> None:
    st.header("Trials that run", anchor=False)
    if not status.running:
        st.caption("None.")
        return
    studies = {trial.study for trial in status.running if trial.study}
    titles = {study: variant_titles(read_record(study)) for study in studies if summary(study) is not None}
    table = running_table(status, titles)
    if is_narrow():
        cards(running_cards(status, table), "Trials that run")
    else:
        words = st.column_config.TextColumn
        steps = st.column_config.ProgressColumn("progress", min_value=0, max_value=1, format="percent", width=90)
        alike = {name for name in ("study", "attempt") if table[name].nunique() == 1}
        st.dataframe(
            table, key="running", hide_index=True, placeholder="-",
            column_order=[name for name in table if name not in ("steps", "process", *alike)],
            column_config={"progress": steps, "variant": words(width=fitting(table, "variant", 200)),
                           "device": words(width=fitting(table, "device", 140))},
            alt=f"Trials that run, with their machines; {plural(len(table), 'row')}",
        )  # fmt: skip
        with st.container(horizontal=True):
            for trial in status.running[:MOST_LINKS]:
                kept = {STUDY: trial.study} if trial.study else {}
                link("trial", f"{_title(trial, titles)}, seed {trial.seed}", trial=trial.key, **kept)
    export(table_files("running", table), "running")


def running_cards(status: Status, table: pd.DataFrame) -> list[Card]:
    """The running trials as a narrow window shows them, each with a link to it."""
    found = []
    for trial, row in zip(status.running, table.to_dict("records"), strict=True):
        kept = {STUDY: trial.study} if trial.study else {}
        loss = f"val_loss {trial.val_loss:.4g}" if trial.val_loss is not None else ""
        told = " · ".join(filter(None, (f"{row['progress']:.0%}", loss, row["for"])))
        where = " · ".join(filter(None, (trial.study, row["host"], trial.worker.device if trial.worker else "")))
        title = f"{row['variant']}, seed {trial.seed}"
        found.append(Card(title, address("trial", trial=trial.key, **kept), (told, where)))
    return found


def _machine() -> None:
    """How busy the machine of the dashboard is, as studies that start here would find it."""
    memory, load, cores = psutil.virtual_memory(), psutil.getloadavg()[0], psutil.cpu_count() or 1
    st.header(f"This machine, {escape(platform.node())}", anchor=False)
    facts = st.container(horizontal=True)
    facts.metric(
        "Load of the whole machine, other programs included", f"{load:.1f} on {plural(cores, 'core')}", width="content"
    )
    facts.metric("Memory in use", f"{memory.used / GIB:.1f} of {memory.total / GIB:.1f} GiB", width="content")


def _last(status: Status) -> None:
    """The studies that were started last, each with a link to its answer, and when their last trials ended."""
    st.header("What ran last", anchor=False)
    lines = []
    for one in studies()[:MOST_LAST]:
        loads, _ = _workers(location(), one.name, stamp(one.name))
        ends = max((load.ended_at[-1] for load in loads if load.ended_at), default=None)
        when = f", the last {duration((status.at - ends).total_seconds())} ago" if ends is not None else ""
        name = f"[{escape(one.name)}]({address('answer', **{STUDY: one.name})})"
        lines.append(f"- {name}: {ended(one):,} of {plural(one.planned, 'trial')} ended{when}")
    st.markdown("\n".join(lines) or "No study yet.")


def _driven(one: StudyStatus, status: Status) -> None:
    driver = one.driver
    with st.container(border=True):
        st.markdown(f"**{escape(driver.study)}**")
        since = duration((status.at - driver.since).total_seconds())
        if driver.alive:
            st.caption(escape(f"Process {driver.pid} on {driver.host} has run it for {since}."))
        else:
            silent = duration((status.at - driver.heartbeat).total_seconds())
            who = f"process {driver.pid} on {escape(driver.host)}"
            st.warning(f"Interrupted: {who} has been silent for {silent}. Run its command again to continue where it "
                       "stopped.", icon=":material/heart_broken:")  # fmt: skip
        st.progress((driver.settled + driver.failed) / max(1, driver.planned),
                    f"{driver.settled:,} of {driver.planned:,} trials done")  # fmt: skip
        facts = st.container(horizontal=True)
        facts.metric(
            *("Running", driver.running) if driver.alive else ("Interrupted", one.interrupted), width="content"
        )
        if one.trials_per_hour is not None:
            facts.metric("Time left", duration(one.seconds_left), width="content")
            facts.metric("Trials an hour", f"{one.trials_per_hour:,.0f}", width="content")
        if one.flops_per_second is not None:
            facts.metric("Arithmetic", f"{scaled(one.flops_per_second)}FLOP/s", width="content")
        if driver.failed:
            facts.metric("Failed", driver.failed, width="content")
        if driver.retries:
            facts.metric("Retries", driver.retries, width="content",
                         help="Times that a trial was begun again after its worker had died")  # fmt: skip


def _title(trial: RunningTrial, titles: Mapping[str, Mapping[str, str]]) -> str:
    """What a reader calls the variant of a trial; the beginning of its key if its study is not known."""
    name = trial.variant or trial.key[:12]
    return titles.get(trial.study or "", {}).get(name, name)


def running_table(status: Status, titles: Mapping[str, Mapping[str, str]]) -> pd.DataFrame:
    """A row for each running trial, the oldest first.

    Args:
        titles: Study to the titles of its variants.
    """
    rows = []
    for trial in status.running:
        where = trial.worker
        rows.append(
            {
                "study": trial.study or None,
                "variant": _title(trial, titles),
                "seed": trial.seed,
                "progress": (trial.step or 0) / max(1, trial.steps),
                "step": trial.step,
                "steps": trial.steps,
                "val_loss": trial.val_loss,
                "for": duration((status.at - trial.started_at).total_seconds()) if trial.started_at else None,
                "host": where.host if where else "waits for a worker",
                "process": where.pid if where else None,
                "device": where.device if where else None,
                "attempt": trial.attempts,
            }
        )
    return pd.DataFrame(rows)


@st.cache_resource(show_spinner=False, max_entries=8)
def _workers(
    location: str, study: str, at: tuple[object, ...]
) -> tuple[tuple[WorkerLoad, ...], tuple[WorkerFailure, ...]]:
    return read_workers(store(), study)


def _past(study: str) -> None:
    """The machines on which trials of the chosen study have ended."""
    loads, failures = _workers(location(), study, stamp(study))
    st.header(f"Where trials of {escape(study)} ran", anchor=False)
    if not loads:
        st.caption("None has ended yet.")
    else:
        st.markdown(f"**{prose(past_words(loads))}**")
        table = load_table(loads)
        shown = table.drop(columns=[name for name in ("failed", "diverged") if not table[name].any()])
        shown["tokens/s"] = [None if pd.isna(rate) else count(round(rate)) for rate in shown["tokens/s"]]
        shown = shown.dropna(axis="columns", how="all")
        show_grid(grid_of_texts(shown), f"Machines and devices, with what ended on them; {plural(len(table), 'row')}")
        export(table_files(f"{study}_workers", table) | _throughput(study, loads), "workers")
    st.header("Failures and retries", anchor=False)
    if not failures:
        st.caption("No trial of this study failed, diverged or was begun twice.")
        return
    titles = variant_titles(read_record(study))
    table = failure_table(failures, titles)
    show_table(
        table, key="failures",
        column_config={"reason": st.column_config.TextColumn(width="large")},
        alt=f"Trials that failed, diverged or were begun again; {plural(len(table), 'row')}",
    )  # fmt: skip
    with st.container(horizontal=True):
        for failure in failures[:MOST_LINKS]:
            label = f"{titles.get(failure.variant, failure.variant)}, seed {failure.seed}"
            link("trial", label, variant=failure.variant, seed=str(failure.seed))
    export(table_files(f"{study}_failures", table), "failures")


def _throughput(study: str, loads: tuple[WorkerLoad, ...]) -> dict[str, Maker]:
    """Draw the number of ended trials over time for each device, and return the figure as files."""
    known = {f"{load.host}, {load.device}": load.ended_at for load in loads[:MOST_DEVICES] if load.ended_at}
    if not known:
        return {}
    begin = min(load.began_at or load.ended_at[0] for load in loads if load.ended_at)
    span = max((times[-1] - begin).total_seconds() for times in known.values())
    unit, seconds = next(((name, one) for one, name in UNITS if span >= one), UNITS[-1][::-1])
    axis = f"{unit} since the first trial began"
    lines: dict[str, Band] = {}
    for name, times in known.items():
        thin = -(-len(times) // MOST_POINTS)
        counted = [(number, time) for number, time in enumerate(times, 1) if number % thin == 0 or number == len(times)]
        passed = (0.0, *((time - begin).total_seconds() / seconds for _, time in counted))
        numbers = (0.0, *(float(number) for number, _ in counted))
        lines[name] = Band(passed, numbers, numbers, numbers, 1)

    def draw(palette: Palette) -> Spec:
        looks = {name: palette.look(number) for number, name in enumerate(lines)}
        return draw_bands(lines, looks, palette, (axis, "trials that have ended"), height=260, whole=True, stepped=True)

    counts = "; ".join(f"{len(times):,} on {name}" for name, times in known.items())
    chart(draw, "throughput", f"Trials that have ended against time: {counts}"[:1000])
    rows = [
        {"where": name, unit: at, "trials": number}
        for name, one in lines.items()
        for at, number in zip(one.x, one.mean, strict=True)
    ]
    return table_files(f"{study}_throughput", pd.DataFrame(rows)) | figure_files(f"{study}_throughput", draw)


def past_words(loads: tuple[WorkerLoad, ...]) -> str:
    """How many trials ended where and in what time, in a sentence."""
    where = f"{plural(sum(load.trials for load in loads), 'trial')} ended on {plural(len(loads), 'device')}"
    times = [time for load in loads for time in (load.began_at, *load.ended_at) if time is not None]
    if not times:
        return f"{where}."
    begin, end, trained = min(times), max(times), sum(load.seconds for load in loads)
    took = (end - begin).total_seconds()
    until = f"{end:%H:%M}" if begin.date() == end.date() else f"{end:%Y-%m-%d %H:%M}"
    at_once = ": several were trained at once" * (trained > took)
    return (
        f"{where} within {duration(took)}, from {begin:%Y-%m-%d %H:%M} to {until} UTC. Their training times add up to "
        f"{duration(trained)}{at_once}."
    )


def load_table(loads: tuple[WorkerLoad, ...]) -> pd.DataFrame:
    """A row for each machine and device."""
    return pd.DataFrame(
        [
            {
                "host": load.host,
                "device": load.device,
                "trials": load.trials,
                "failed": load.failed,
                "diverged": load.diverged,
                "training": duration(load.seconds),
                "tokens/s": load.tokens_per_second,
                "arithmetic": f"{scaled(load.flops / load.seconds)}FLOP/s" if load.seconds and load.flops else None,
            }
            for load in loads
        ]
    )


def failure_table(failures: tuple[WorkerFailure, ...], titles: Mapping[str, str]) -> pd.DataFrame:
    """A row for each trial that failed, diverged or was restarted."""
    return pd.DataFrame(
        [
            {
                "variant": titles.get(failure.variant, failure.variant),
                "seed": failure.seed,
                "state": str(failure.state),
                "attempts": failure.attempts,
                "host": failure.host,
                "reason": failure.reason,
            }
            for failure in failures
        ]
    )

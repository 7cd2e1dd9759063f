"""Now running: which trials run where, how fast trials end, which ones failed or were restarted."""

from __future__ import annotations

import html
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain

import pandas as pd
import psutil
import streamlit as st

from ablate.analysis.changes import variant_titles
from ablate.analysis.curves import Band
from ablate.analysis.numbers import MISSING, count, counted, duration, plural, scaled
from ablate.analysis.status import Status, StudyStatus, WorkerFailure, WorkerLoad, read_workers, status_of
from ablate.render.blocks import Grid
from ablate.render.figures.curves import draw_bands
from ablate.render.figures.style import Palette, Spec, layers, mark, number
from ablate.store.records import RunningTrial, StudySummary
from dashboard.shared.exports import (
    Maker,
    chart,
    export,
    figure_files,
    grid_of_texts,
    show_grid,
    show_table,
    table_files,
)
from dashboard.shared.frame import STUDY, address, chosen_study, link
from dashboard.shared.machine import EVERY, history, sample
from dashboard.shared.results import answer
from dashboard.shared.running import last_run, step_label, stop_button
from dashboard.shared.store import LIVE, complete, ended, location, stamp, store, studies, summary
from dashboard.shared.store import record as read_record
from dashboard.shared.text import escape, prose
from dashboard.views import Entry

ENTRY = Entry("Now running", ":material/dns:", "All studies", 140)

MOST_LINKS, UNPLACED = 6, "waits for a worker"
UNITS = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
"""Seconds in each unit of the time axis; the first unit that the whole range exceeds is used."""
MOST_LAST, LEAST_PAST, GIB = 5, 300.0, 2.0**30
"""Studies that ran last and are shown; seconds of samples of the machine that make a line."""
MOST_DEVICES, MOST_POINTS = 12, 300
"""Maximum numbers of lines in the figure of throughput, and of points in each."""


def show() -> None:
    """Draw the page."""
    study = chosen_study()
    st.title("Now running", anchor=False)  # of all studies
    driven = [one.driver.study for one in status_of(store().activity()).studies]
    st.fragment(_live, run_every=LIVE)(study, driven)
    if not driven:
        _, failures = _workers(location(), study, stamp(study))
        told = f"Where trials of {escape(study)} ran"
        told += f", {plural(len(failures), 'failure')} or retries" if failures else ""
        past = st.expander(told, key="past", on_change="rerun", bind="query-params")
        if past.open:
            with past:
                _past(study)


def _live(study: str, driven: Sequence[str]) -> None:
    """What runs, and with it what has ended of it; otherwise what could run next.

    Args:
        driven: The studies that were driven when the page was begun.
    """
    status = status_of(store().activity())
    if [one.driver.study for one in status.studies] != driven:
        st.rerun()
    for one in status.studies:
        _driven(one, status)
    if status.studies:
        _running(status)
        _machine()
        st.header(f"Where trials of {escape(driven[-1])} ran", anchor=False)
        _past(driven[-1])
    else:
        _idle(status)


def _idle(status: Status) -> None:
    """That nothing runs, and what ran last with what it suggests."""
    now, cores = sample(), psutil.cpu_count() or 1
    busy = f" Other programs keep this machine busy (load {now.load:.1f} on {plural(cores, 'core')}): training would "
    st.markdown("**No study runs now.**" + f"{busy}take longer." * (now.load > cores))
    st.header("What ran last", anchor=False)
    last = studies()[:MOST_LAST]
    rows = tuple(_last(one, status) for one in last)
    titles = ("study", "state", "trials ended", "last ended", "training", "next step")
    show_grid(Grid(titles, (rows,), frozenset({0, 1, 5})), "What ran last",
              [address("answer", **{STUDY: one.name}) for one in last])  # fmt: skip
    st.caption("A name opens the answer, where the next step can be taken.")
    link("design", "Design another study")
    _machine()


def _last(one: StudySummary, status: Status) -> tuple[str, ...]:
    """A study that ran: how far it is, how long ago its last trial ended, the training time, and what may follow."""
    loads, _ = _workers(location(), one.name, stamp(one.name))
    ends = max((load.ended_at[-1] for load in loads if load.ended_at), default=None)
    ago = MISSING if ends is None else f"{duration((status.at - ends).total_seconds())} ago"
    step = next(iter(answer(one.name).next), None) if ended(one) else None
    label = "" if step is None or not (step.arguments or step.field) else step_label(step, one.name)
    time = f", about {duration(step.seconds)}" if label and step is not None and step.seconds else ""
    lost = counted((("diverged", one.diverged), ("failed", one.failed), ("pruned", one.pruned)))
    state = ", ".join(["complete" if complete(one) else "incomplete", *lost])
    trained = duration(sum(load.seconds for load in loads)) if loads else MISSING
    return (one.name, state, f"{ended(one):,} of {one.planned:,}", ago, trained, f"{label}{time}" or "none")


def _machine() -> None:
    """The load and the memory of the machine of the dashboard, over the last hour as far as the server has seen it."""
    past, cores, whole = history() or [sample()], psutil.cpu_count() or 1, psutil.virtual_memory().total
    st.header(f"This machine, {escape(platform.node())}", anchor=False)
    now, columns = past[-1], st.columns(2, gap="medium")
    with columns[0]:
        loads = [(one.at, one.load) for one in past]
        _use(f"**Load** {now.load:.1f} on {plural(cores, 'core')}", plural(cores, "core"), now.load, cores, loads)
    with columns[1]:
        used = [(one.at, one.used / GIB) for one in past]
        told = f"**Memory** {now.used / GIB:.1f} of {whole / GIB:.1f} GiB used"
        _use(told, f"{whole / GIB:.1f} GiB", now.used / GIB, whole / GIB, used)
    seen = f", a sample each {EVERY:.0f} s" * (now.at - past[0].at >= LEAST_PAST)
    free = psutil.disk_usage(".").free / GIB
    st.caption(f"As of {datetime.fromtimestamp(now.at):%H:%M:%S}{seen}; {free:.0f} GiB of disk free.")


def _use(told: str, limit: str, now: float, whole: float, past: Sequence[tuple[float, float]]) -> None:
    """How much of the whole is used: a line over time with this limit, or a bar before there are samples."""
    if past[-1][0] - past[0][0] < LEAST_PAST:
        st.progress(min(1.0, now / whole), told)
        return
    st.markdown(told)
    end = past[-1][0]
    rows = [{"ago": (end - at) / 60, "used": used} for at, used in past]
    span = rows[0]["ago"]

    def draw(palette: Palette) -> Spec:
        x = number("ago", "minutes ago", domain=(span, 0), axis={"tickCount": 5})
        top = 1.15 * max(whole, *(row["used"] for row in rows))
        y = number("used", domain=(0, top), axis={"tickCount": 4})
        area = mark("area", rows, {"x": x, "y": y}, color=palette.look(5).colour, opacity=0.3, line=True)
        at = {"y": {"datum": whole}}
        named = mark("text", [{"limit": limit}], {**at, "text": {"field": "limit"}}, align="right", x="width", dy=-7)
        return layers([area, mark("rule", [{}], at, strokeDash=[4, 3]), named], 110)

    chart(draw, f"use-{limit}", f"{told.replace('*', '')}, over the last {rows[0]['ago']:.0f} minutes")


def _running(status: Status) -> None:
    st.header("Trials that run", anchor=False)
    if not status.running:
        st.caption("None.")
        return
    known = {trial.study for trial in status.running if trial.study}
    titles = {study: variant_titles(read_record(study)) for study in known if summary(study) is not None}
    table = running_table(status, titles)
    st.html(running_html(status, table))
    export(table_files("running", table), "running")


def running_html(status: Status, table: pd.DataFrame) -> str:
    """The running trials below their variants as rows, each a link to it."""
    workers = [trial.worker for trial in status.running]
    places = [f"{one.host} · {one.device}" if one is not None else UNPLACED for one in workers]
    several, told, lines = table["study"].nunique() > 1, len({*places}) > 1, dict[str, list[str]]()
    for trial, row, place in zip(status.running, table.to_dict("records"), places, strict=True):
        kept = {STUDY: trial.study} if trial.study else {}
        name = f"{row['study']} · {row['variant']}" if several else str(row["variant"])
        where, done = html.escape(place) * told, row["progress"]
        loss = MISSING if trial.val_loss is None else f"{trial.val_loss:.4f}"
        lines.setdefault(name, []).append(
            f'<tr><td><a href="{html.escape(address("trial", trial=trial.key, **kept))}">seed {trial.seed}</a>'
            f'<small class="narrow"> {where}</small></td>{f"<td class=wide>{where}</td>" * told}<td class="number">'
            f'<progress class="wide" aria-label="progress" max="1" value="{done:.3f}"></progress> {done:.0%}</td>'
            f'<td class="number">{loss}</td><td class="number">{row["for"] or MISSING}</td></tr>'
        )
    heads = (
        (f'<tr class="of"><td colspan="{4 + told}">{html.escape(name)}</td></tr>', *rows)
        for name, rows in lines.items()
    )
    head = "<th>variant, trials</th>" + '<th class="wide">where</th>' * told
    head += "".join(f'<th class="number">{title}</th>' for title in ("progress", "val_loss", "for"))
    return (
        '<table class="answer trials" aria-label="Trials that run"><thead><tr>'
        f"{head}</tr></thead><tbody>{''.join(chain.from_iterable(heads))}</tbody></table>"
    )


def _driven(one: StudyStatus, status: Status) -> None:
    driver = one.driver
    with st.container(border=True):
        row = st.container(horizontal=True, vertical_alignment="center")
        row.markdown(f"**{escape(driver.study)}**", width="stretch")
        with row:
            link("answer", "Answer so far", **{STUDY: driver.study})
            link("curves", "Curves", **{STUDY: driver.study})
            run = last_run(driver.study)
            if driver.alive and run is not None and run.alive:
                stop_button(run)
        left = f", about {duration(one.seconds_left)} left" if one.seconds_left is not None else ""
        st.progress((driver.settled + driver.failed) / max(1, driver.planned),
                    f"{driver.settled:,} of {driver.planned:,} trials done{left}")  # fmt: skip
        facts = st.container(horizontal=True)
        if driver.alive:
            facts.metric("Running", driver.running, width="content")
        if one.trials_per_hour is not None:
            facts.metric("Trials an hour", f"{one.trials_per_hour:,.0f}", width="content")
        if (used := used_here([trial for trial in status.running if trial.study == driver.study])) is not None:
            facts.metric("Cores busy", f"{used[0]:.1f} of {psutil.cpu_count()}", width="content",
                         help="Of this machine, by the processes that train, on average since they began")  # fmt: skip
            facts.metric("Memory", f"{used[1] / GIB:.1f} GiB", width="content")
        if driver.failed:
            facts.metric("Failed", driver.failed, width="content")
        if driver.retries:
            facts.metric("Retries", driver.retries, width="content",
                         help="Times that a trial was begun again after its worker had died")  # fmt: skip
        who = f"process {driver.pid} on {driver.host}"
        if driver.alive:
            speed = f" at {scaled(one.flops_per_second)}FLOP/s" if one.flops_per_second is not None else ""
            since = duration((status.at - driver.since).total_seconds())
            st.caption(escape(f"{who.capitalize()} has run it for {since}{speed}."))
            return
        silent = duration((status.at - driver.heartbeat).total_seconds())
        begun = f" {plural(one.interrupted, 'trial')} had begun." if one.interrupted else ""
        st.warning(f"Interrupted: {escape(who)} has been silent for {silent}.{begun}", icon=":material/heart_broken:")
        link("runs", "Continue where it stopped", **{STUDY: driver.study})


def used_here(running: Sequence[RunningTrial]) -> tuple[float, int] | None:
    """Cores that the processes of these trials have kept busy, and the bytes they have; None if none runs here."""
    cores, taken = 0.0, 0
    for pid in {trial.worker.pid for trial in running if trial.worker and trial.worker.host == platform.node()}:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            times = process.cpu_times()
            cores += (times.user + times.system) / max(1.0, time.time() - process.create_time())
            taken += process.memory_info().rss
    return (cores, taken) if taken else None


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
                "host": where.host if where else UNPLACED,
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
    """Where the trials of a study have ended, how fast, and those that failed."""
    loads, failures = _workers(location(), study, stamp(study))
    if not loads:
        st.caption("None has ended yet.")
    else:
        said, times = past_words(loads)
        st.markdown(f"**{prose(said)}**")
        table = load_table(loads)
        shown = table.drop(columns=[name for name in ("failed", "diverged") if not table[name].any()])
        shown["tokens/s"] = [None if pd.isna(rate) else count(round(rate)) for rate in shown["tokens/s"]]
        shown = shown.dropna(axis="columns", how="all")
        show_grid(grid_of_texts(shown), f"Machines and devices, with what ended on them; {plural(len(table), 'row')}")
        files = _throughput(study, loads)
        if times:
            st.caption(prose(times))
        export(table_files(f"{study}_workers", table) | files, "workers")
    if not failures:
        return
    st.header("Failures and retries", anchor=False)
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
            link("trial", label, variant=failure.variant, seed=str(failure.seed), **{STUDY: study})
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

    alone = len(lines) == 1  # its name is in the table above
    shown = {"trials": next(iter(lines.values()))} if alone else lines

    def draw(palette: Palette) -> Spec:
        looks = {name: palette.look(number) for number, name in enumerate(shown)}
        titles = (axis, "trials that have ended")
        return draw_bands(shown, looks, palette, titles, height=220, whole=True, stepped=True, named=alone)

    counts = "; ".join(f"{len(times):,} on {name}" for name, times in known.items())
    chart(draw, "throughput", f"Trials that have ended against time: {counts}"[:1000])
    rows = [
        {"where": name, unit: at, "trials": number}
        for name, one in lines.items()
        for at, number in zip(one.x, one.mean, strict=True)
    ]
    return table_files(f"{study}_throughput", pd.DataFrame(rows)) | figure_files(f"{study}_throughput", draw)


def past_words(loads: tuple[WorkerLoad, ...]) -> tuple[str, str]:
    """How many trials ended where and in what time, in a sentence; and when, and how long each was trained."""
    troubled = sum(load.failed + load.diverged for load in loads)
    where = f"{plural(sum(load.trials for load in loads), 'trial')} ended on {plural(len(loads), 'device')}"
    lost = f", {troubled:,} of them failed or diverged." if troubled else ", none failed or diverged."
    times = [time for load in loads for time in (load.began_at, *load.ended_at) if time is not None]
    if not times:
        return f"{where}{lost}", ""
    begin, end, trained = min(times), max(times), sum(load.seconds for load in loads)
    took = (end - begin).total_seconds()
    until = f"{end:%H:%M}" if begin.date() == end.date() else f"{end:%Y-%m-%d %H:%M}"
    at_once = ": several were trained at once" * (trained > took)
    return (
        f"{where} within {duration(took)}{lost}",
        f"From {begin:%Y-%m-%d %H:%M} to {until} UTC. The training times add up to {duration(trained)}{at_once}.",
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

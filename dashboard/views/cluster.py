"""Now running: which trials run where, what ran last with its next step, and what the machine does."""

from __future__ import annotations

import html
import platform
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain

import pandas as pd
import psutil
import streamlit as st

from ablate.analysis.changes import variant_titles
from ablate.analysis.numbers import MISSING, about, counted, duration, plural, scaled
from ablate.analysis.status import Status, StudyStatus, status_of
from ablate.render.blocks import Grid
from ablate.render.figures.style import Palette, Spec, layers, mark, number
from ablate.store.records import RunningTrial, StudySummary
from dashboard.shared.exports import (
    Card,
    cards,
    chart,
    dark,
    export,
    is_narrow,
    plain_table,
    table_files,
)
from dashboard.shared.frame import STUDY, address, chosen_study, link
from dashboard.shared.machine import EVERY, Sample, history, sample
from dashboard.shared.past import show_past, workers
from dashboard.shared.results import answer
from dashboard.shared.running import last_run, step_label, stop_button
from dashboard.shared.store import LIVE, ended, location, stamp, store, studies, summary
from dashboard.shared.store import record as read_record
from dashboard.shared.text import escape, leading_sentences
from dashboard.views import Entry

ENTRY = Entry("Now running", ":material/dns:", "All studies", 140)

UNPLACED, NO_STEP = "waits for a worker", "none"
MOST_LAST, LEAST_PAST, GIB, LATE, LONGEST = 5, 60.0, 2.0**30, 0.8, 165
"""Studies that ran last and are shown; seconds of samples of the machine that make a line; the share of a bar from
which what is said of its mark is at its end; characters of an answer."""


def show() -> None:
    """Draw the page."""
    chosen_study()
    st.title("Now running", anchor=False)  # of all studies
    driven = [one.driver.study for one in status_of(store().activity()).studies]
    st.fragment(_live, run_every=LIVE)(driven)


def _live(driven: Sequence[str]) -> None:
    """What runs, and with it what has ended of it; otherwise what could run next.

    Args:
        driven: The studies that were driven when the page was begun.
    """
    status = status_of(store().activity())
    if [one.driver.study for one in status.studies] != driven:
        st.rerun()
    past = history() or [sample()]
    for one in status.studies:
        _driven(one, status)
    if status.studies:
        _running(status)
        _machine(past)
        st.header(f"Where trials of {escape(driven[-1])} ran", anchor=False)
        show_past(driven[-1])
    else:
        _idle(status, past)


def _idle(status: Status, past: Sequence[Sample]) -> None:
    """That nothing runs, what ran last with what it suggests, and what the machine does."""
    most = f", most of all {past[-1].busiest}" if past[-1].busiest else ""
    busy = f"Other programs keep this machine busy{most}: training would take longer."
    st.markdown("**No study runs now.** " + escape(busy) * (past[-1].load > (psutil.cpu_count() or 1)))
    known = studies()
    rows = [(one, *_last(one, status)) for one in known[:MOST_LAST]]
    all_of = f", {MOST_LAST} of {len(known)} studies" * (len(known) > MOST_LAST)
    st.header(f"What ran last{all_of}", anchor=False)
    links = [address("answer", **{STUDY: one.name}) for one, *_ in rows]
    steps = ["" if step.startswith(NO_STEP) else address("runs", **{STUDY: one.name}) for one, *_, step in rows]
    if is_narrow():
        found = [
            Card(one.name, link, (one.question, f"{far}, {ago}"), finding=said, further=(f"Next: {step}", to))
            for (one, said, far, ago, step), link, to in zip(rows, links, steps, strict=True)
        ]
        cards(found, "What ran last")
    else:
        titles = ("study", "question", "answer", "trials ended", "last ended", "next step")
        cells = tuple((one.name, one.question, *rest) for one, *rest in rows)
        plain_table(Grid(titles, (cells,), frozenset({0, 1, 2, 3, 5})), "What ran last", links, steps)
    st.caption("The time of a next step is at the speed of the earlier trials.")
    with st.container(horizontal=True):
        link("studies", "All studies")
        link("design", "Design another study")
    _machine(past)


def _last(one: StudySummary, status: Status) -> tuple[str, str, str, str]:
    """The answer of a study, how far it is, how long ago its last trial ended, and what may follow, or why nothing."""
    loads, _ = workers(location(), one.name, stamp(one.name))
    ends = max((load.ended_at[-1] for load in loads if load.ended_at), default=None)
    ago = MISSING
    if ends is not None:
        hours = round((seconds := (status.at - ends).total_seconds()) / 3600)
        ago = f"{f'{hours:,} h' if hours > 1 else about(seconds)} ago"
    found = answer(one.name) if ended(one) else None
    step = next(iter(found.next), None) if found else None
    if step is None:
        told = NO_STEP
    elif step.arguments or step.field:
        told = step_label(step, one.name) + (f", {about(step.seconds)}" if step.seconds else "")
    else:
        told = f"{NO_STEP}, {re.split('[:;]', step.purpose)[0]}"
    lost = counted((("diverged", one.diverged), ("failed", one.failed), ("pruned", one.pruned)))
    far = ", ".join([f"{ended(one):,} of {one.planned:,}{' trials' * is_narrow()}", *lost])
    return leading_sentences(found.headline, LONGEST) if found else MISSING, far, ago, told


def _machine(past: Sequence[Sample]) -> None:
    """The load and the memory of the machine of the dashboard, over the last hour as far as the server has seen it."""
    cores, whole = psutil.cpu_count() or 1, psutil.virtual_memory().total
    st.header(f"This machine ({escape(platform.node())})", anchor=False)
    now, columns = past[-1], st.columns(2, gap="medium")
    _, of_5, of_15 = psutil.getloadavg()
    with columns[0]:
        loads = [(one.at, one.load) for one in past]
        over = f", {now.load / cores:.1f} times their capacity" * (now.load > cores)
        means = f"; {of_5:.1f} (5 min), {of_15:.1f} (15 min)"
        told = f"**Load** {now.load:.1f} (1 min) on {plural(cores, 'core')}{over}{means}"
        _use(told, plural(cores, "core"), now.load, cores, loads)
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
        st.markdown(told)
        st.html(_bar(now, whole, limit))
        return
    st.markdown(told)
    end = past[-1][0]
    rows = [{"ago": (end - at) / 60, "used": used} for at, used in past]
    span = rows[0]["ago"]

    def draw(palette: Palette) -> Spec:
        x = number("ago", "minutes ago", domain=(span, 0), axis={"tickCount": 5})
        top = 1.15 * max(whole, *(row["used"] for row in rows))
        y = number("used", domain=(0, top), axis={"tickCount": 4})
        area = mark("area", rows, {"x": x, "y": y}, color=palette.look(0).colour, opacity=0.3, line=True)
        at = {"y": {"datum": whole}}
        named = mark("text", [{"limit": limit}], {**at, "text": {"field": "limit"}}, align="right", x="width", dy=-7)
        return layers([area, mark("rule", [{}], at, strokeDash=[4, 3]), named], 110)

    chart(draw, f"use-{limit}", f"{told.replace('*', '')}, over the last {rows[0]['ago']:.0f} minutes")


def _bar(now: float, whole: float, limit: str) -> str:
    """How much of the whole is used, with what exceeds it in the colour of what is worse and a line at the whole."""
    palette = Palette(dark())
    end = max(now, whole)
    parts = [(palette.look(0).colour, 0.0, min(now, whole)), (palette.verdict("needed").colour, whole, now)]
    drawn = "".join(
        f'<span style="position: absolute; height: 100%; left: {begin / end:.1%}; width: {(to - begin) / end:.1%}; '
        f'background: {colour}"></span>'
        for colour, begin, to in parts if to > begin
    )  # fmt: skip
    mark = f'<span style="position: absolute; left: calc({whole / end:.1%} - 2px); top: -4px; bottom: -4px; '
    mark += f'width: 2px; background: {palette.ink}" title="{limit}"></span>'
    back = "background: rgba(128, 140, 155, 0.2); box-shadow: 0 0 0 1px rgb(128, 140, 155)"
    aside = "right: 0" if whole / end > LATE else f"left: {whole / end:.1%}"
    return (
        f'<div aria-hidden="true"><div style="position: relative; height: 8px; {back}">{drawn}{mark}</div>'
        f'<div style="position: relative; height: 1.5rem; font-size: 0.8rem">0<span style="position: absolute; '
        f'{aside}">{limit}</span></div></div>'
    )


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
        left = f", {about(one.seconds_left)} left" if one.seconds_left is not None else ""
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

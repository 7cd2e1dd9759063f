"""Where the trials of a study ran, how fast they ended, and which ones failed or were begun again."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import streamlit as st

from ablate.analysis.changes import variant_titles
from ablate.analysis.curves import Band
from ablate.analysis.numbers import count, duration, plural, scaled
from ablate.analysis.status import WorkerFailure, WorkerLoad, read_workers
from ablate.render.figures.curves import draw_bands
from ablate.render.figures.style import Palette, Spec
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
from dashboard.shared.frame import STUDY, link
from dashboard.shared.store import location, record, stamp, store
from dashboard.shared.text import prose

MOST_LINKS = 6
UNITS = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
"""Seconds in each unit of the time axis; the first unit that the whole range exceeds is used."""
MOST_DEVICES, MOST_POINTS = 12, 300
"""Maximum numbers of lines in the figure of throughput, and of points in each."""


@st.cache_resource(show_spinner=False, max_entries=8)
def workers(
    location: str, study: str, at: tuple[object, ...]
) -> tuple[tuple[WorkerLoad, ...], tuple[WorkerFailure, ...]]:
    """The load and the failures of each worker of a study; `at` is the stamp of what is stored of it."""
    return read_workers(store(), study)


def show_past(study: str) -> None:
    """Where the trials of a study have ended, how fast, and those that failed."""
    loads, failures = workers(location(), study, stamp(study))
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
    titles = variant_titles(record(study))
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

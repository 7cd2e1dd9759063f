"""Trial: one training run, with its outcome, curve, recordings of blocks, spec, environment and command to rerun it."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import streamlit as st

from ablate.analysis.curves import AXES, Band, band, line
from ablate.analysis.numbers import MISSING, count, duration, scaled
from ablate.analysis.status import place_of
from ablate.analysis.text import plural
from ablate.command_line import hide_passwords
from ablate.devices import utilisation
from ablate.errors import NotFoundError
from ablate.locations import DEFAULT_STORE
from ablate.render.blocks import Grid
from ablate.render.figures.curves import draw_bands
from ablate.render.figures.style import Look, Palette, Spec
from ablate.spec.suite import at_task, split_task
from ablate.store import CurvePoint, StudyRecord, TrialRecord, TrialState, VariantRecord
from ablate.store.records import USAGE
from dashboard.shared.evidence import evidence_link, show_differences
from dashboard.shared.exports import Maker, chart, code, export, figure_files, plain_table, table_files
from dashboard.shared.frame import begin_page, link, warn_of_unknown
from dashboard.shared.inside import show_inside
from dashboard.shared.pictures import BlockPicture, block_files, block_pictures
from dashboard.shared.results import can_write, edit_mark, on_task, report_on, sample_box
from dashboard.shared.schema import to_yaml
from dashboard.shared.store import LIVE, location, moves, store
from dashboard.shared.store import record as read_record
from dashboard.shared.text import escape, prose

TIMED_FROM = 10.0
"""Seconds of training from which on a trial's clock tells its rate; how variants compare it does not tell."""
STATES = {
    TrialState.WAITING: "gray",
    TrialState.RUNNING: "blue",
    TrialState.FINISHED: "green",
    TrialState.DIVERGED: "violet",
    TrialState.PRUNED: "orange",
    TrialState.FAILED: "red",
}
BESIDE = "validation, baseline with this seed"
GIB = 2.0**30
WHOLE = {"mean": "mean", "max": "highest"}
USED: dict[str, tuple[str, Callable[[float], str], str]] = {
    "cores": ("Cores", "{:.2f}".format, "mean"),
    "memory": ("Memory", lambda used: f"{used / GIB:.2f} GiB", "max"),
    "gpu": ("GPU", "{:.0%}".format, "mean"),
    "gpu_memory": ("GPU memory", lambda used: f"{used / GIB:.2f} GiB", "max"),
}
"""Samples: label, format of a number, and the summary of all samples."""


def show() -> None:
    """Draw the page."""
    study = begin_page("Trial")
    record = read_record(study)
    key = _choose(record)
    if key is None:
        return
    trial = store().trials([key]).get(key)
    if trial is None:
        st.badge(TrialState.WAITING, color="gray")
        st.info("This trial has not begun yet.")
        return
    _, task = split_task(_variant(record, trial).name)
    record = on_task(study, task)
    variant = _variant(record, trial)
    st.fragment(_live, run_every=LIVE if moves(trial) else None)(record, variant, key, task)
    edit_mark("trial", key)
    _usage(key)
    if not moves(trial):
        st.fragment(show_inside)(key, variant.name or "the trial")
    _spec(record, variant)
    _environment(trial)
    st.header("Run it again", anchor=False)
    place = location()
    where = "" if place == DEFAULT_STORE else f" --store {hide_passwords(place)}"
    code(f"ablate reproduce {key[:12]}{where}")
    if trial.environment is not None:
        st.caption("It was first run by")
        code(trial.environment.command)
    if can_write(record, variant) and trial.state is TrialState.FINISHED:
        st.header("Samples", anchor=False)
        sample_box({variant.name: key})
    st.header("Block", anchor=False)
    _blocks(record, variant)
    export(block_files(f"variant_{variant.hash[:12]}", variant.name or "block", variant.spec.get("model", {})), "block")


def _blocks(record: StudyRecord, variant: VariantRecord) -> None:
    """Show the block of the trial, compared with that of the baseline."""
    name, baseline = variant.name or "block", next(one for one in record.variants if one.name == record.baseline)
    first = (baseline.name, baseline.spec.get("model", {}))
    if variant.name == baseline.name:
        block_pictures([BlockPicture(*first)])
        return
    block_pictures([BlockPicture(*first), BlockPicture(name, variant.spec.get("model", {}), versus=first)])


def _choose(record: StudyRecord) -> str | None:
    """The key of the trial that the address or the select boxes name."""
    names = list(dict.fromkeys(trial.variant for trial in record.planned))
    boxes = st.columns([3, 1, 2], vertical_alignment="bottom")
    asked = boxes[2].text_input(
        "Or by its key", key="trial", bind="query-params", placeholder="the first characters will do"
    )
    if asked:
        try:
            return store().trial(asked.strip()).key
        except NotFoundError as error:
            st.error(prose(str(error)))
            return None
    if not names:
        st.info("This study has planned no trial yet.")
        return None
    warn_of_unknown("variant", names)
    variant = boxes[0].selectbox("Variant", names, key="variant", bind="query-params")
    seeds = {str(trial.seed): trial.key for trial in record.planned if trial.variant == variant}
    warn_of_unknown("seed", list(seeds))
    seed = boxes[1].selectbox("Seed", list(seeds), key="seed", bind="query-params")
    return seeds.get(seed) if seed is not None else None


def _variant(record: StudyRecord, trial: TrialRecord) -> VariantRecord:
    """The name that this study has for the variant of a trial."""
    own = {variant.hash: variant for variant in record.variants}
    return own.get(trial.variant_hash) or store().variant(trial.variant_hash)


def _precision(variant: VariantRecord) -> str:
    return str(variant.spec.get("training", {}).get("precision", "fp32"))


def _live(record: StudyRecord, variant: VariantRecord, key: str, task: str) -> None:
    trial = store().trial(key)
    if not moves(trial) and st.session_state.get("moved") == key:
        st.session_state["moved"] = None
        st.rerun()
    if moves(trial):
        st.session_state["moved"] = key
    _head(record, variant, trial, task)
    points = store().curves([key])[key]
    if points:
        _curve(record, points, variant.name, trial)
    elif trial.state is not TrialState.FAILED:
        st.caption("No point of its curve has been recorded yet.")


def _head(record: StudyRecord, variant: VariantRecord, trial: TrialRecord, task: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(trial.state, color=STATES[trial.state])  # type: ignore[arg-type]
        on = f" on {escape(task)}" if task else ""
        st.markdown(f"**{escape(variant.name or 'a variant of no study')}**{on}, seed {trial.seed}", width="content")
        st.markdown(f"`{trial.key}`", width="content")
    if trial.state is TrialState.DIVERGED:
        step = f" at step {trial.stopped_at:,}" if trial.stopped_at is not None else ""
        st.warning(f"Diverged{step}: {prose(trial.reason)}", icon=":material/trending_up:")
    if trial.state in (TrialState.FINISHED, TrialState.PRUNED) and trial.reason:
        st.caption(prose(trial.reason))
    if trial.state is TrialState.FAILED:
        lines = [text for text in trial.reason.splitlines() if text.strip()] or ["no reason was recorded"]
        st.error(f"Failed: {prose(lines[-1])}", icon=":material/error:")
        if len(lines) > 1:
            with st.expander("The whole error"):
                code(trial.reason.strip("\n"))
    row = next((row for row in report_on(record.name, task).variants if row.name == variant.name), None)
    if row is not None and row.verdict_sentence:
        evidence = evidence_link("evidence", at_task(row.name, task))
        st.markdown(f"The verdict on its variant: {prose(row.verdict_sentence)} ({evidence})")
    facts = st.container(horizontal=True)
    for metric, value in trial.metrics.items():
        facts.metric(escape(metric), f"{value:.5g}", width="content")
    if variant.parameters:
        facts.metric("Parameters", count(variant.parameters), width="content")
    if not moves(trial):
        facts.metric("Steps", f"{trial.steps:,}", width="content")
        arithmetic = f"{scaled(trial.flops)}FLOP" if trial.flops else None  # unknown of the user's own trainer
        facts.metric("Training", duration(trial.seconds), arithmetic, delta_color="off", delta_arrow="off",
                     width="content")  # fmt: skip
        timed = trial.seconds >= TIMED_FROM and trial.flops > 0
        if timed:
            share = utilisation(trial.flops, trial.seconds, place_of(trial)[1], _precision(variant))
            used = f"{share:.1%} of the peak" if share is not None else None
            facts.metric("Arithmetic", f"{scaled(trial.flops / trial.seconds)}FLOP/s", used, delta_color="off",
                         delta_arrow="off", width="content", help="Model FLOP utilisation: without recomputation, "
                         "relative to the peak of the device.")  # fmt: skip
        speed = f"{trial.tokens / trial.seconds:,.0f} tokens/s" if timed else None
        if trial.tokens:
            facts.metric("Tokens", count(trial.tokens), speed, delta_color="off", delta_arrow="off", width="content")
    with st.container(horizontal=True):
        if variant.name:
            sides = [variant.name] if variant.name == record.baseline else [record.baseline, variant.name]
            where = {"task": task} if task else {}
            if len(sides) > 1:
                link("compare", "Compare with the baseline", sides=sides, **where)
            link("curves", "Curves", variants=sides, **where)


def _curve(record: StudyRecord, points: tuple[CurvePoint, ...], name: str, trial: TrialRecord) -> None:
    """Draw both losses, and offer every recorded point."""
    losses = {"validation": band([line(points)]), "training": band([line(points, loss="train_loss")])}
    if name != record.baseline:
        losses[BESIDE] = band([line(_baseline_points(record, trial.seed))])
    known: dict[str, Band] = {said: one for said, one in losses.items() if one.mean}

    def draw(palette: Palette) -> Spec:
        colour = palette.variants(record).get(name, palette.look(0)).colour
        looks = {"validation": Look(colour, (1, 0), "circle"), "training": Look(colour, (2, 3), "square"),
                 BESIDE: Look(palette.ink, (6, 3), "diamond")}  # fmt: skip
        return draw_bands(known, looks, palette, ("steps", "loss"), height=300)

    last = next((point for point in reversed(points) if point.val_loss is not None), points[-1])
    ends = f", {last.val_loss:.5g} at step {last.step:,}" if last.val_loss is not None else ""
    said = f"Training and validation loss of {name}, seed {trial.seed} against steps{ends}"
    chart(draw, "trial-curve", said)
    table = pd.DataFrame(
        [
            {
                **{name: at(point) for name, at in AXES.items()},
                "train_loss": point.train_loss,
                "val_loss": point.val_loss,
            }
            for point in points
        ]
    )
    log = st.expander(f"Log: {len(table):,} points", key="log", on_change="rerun")
    if log.open:
        log.dataframe(table, hide_index=True, placeholder=MISSING, alt="Every recorded point of the curve")
    files = table_files(f"trial_{trial.key[:12]}", table) | figure_files(f"trial_{trial.key[:12]}", draw)
    export(files, "log")


def _baseline_points(record: StudyRecord, seed: int) -> tuple[CurvePoint, ...]:
    """The curve of the baseline's trial with the same seed; empty without one."""
    key = next((plan.key for plan in record.planned if (plan.variant, plan.seed) == (record.baseline, seed)), None)
    return () if key is None else store().curves([key]).get(key, ())


def _spec(record: StudyRecord, variant: VariantRecord) -> None:
    st.header("Spec", anchor=False)
    show_differences(record, variant)
    text = to_yaml(variant.spec)
    with st.expander("The full spec as YAML"):
        code(text)
    files: dict[str, Maker] = {f"variant_{variant.hash[:12]}.yaml": lambda: text}
    export(files, "spec")


def _usage(key: str) -> None:
    """Show the resources used by the process that trained it; nothing if there are no samples."""
    samples = [
        (recording.step, recording.values[USAGE]) for recording in store().recordings(key) if USAGE in recording.values
    ]
    if not samples:
        return
    st.header("Use of the machine", anchor=False)
    facts = st.container(horizontal=True)
    rows = pd.DataFrame([{"step": step, **used} for step, used in samples])
    for name, (said, show_number, whole) in USED.items():
        if name in rows:
            series = rows[name].dropna()
            told = show_number(float(series.agg(whole)))
            facts.metric(f"{said}, {WHOLE[whole]}", told, chart_data=series if len(series) > 1 else None,
                         width="content")  # fmt: skip
    st.caption(
        f"Of the process that trained it, with all trials of its pack: {plural(len(samples), 'sample')}, ten seconds "
        f"apart or more, from step {samples[0][0]:,} to {samples[-1][0]:,}."
    )
    export(table_files(f"trial_{key[:12]}_usage", rows), "usage")


def _environment(trial: TrialRecord) -> None:
    st.header("Environment", anchor=False)
    if trial.environment is None:
        st.caption("It is not known where this trial ran.")
        return
    where = trial.environment
    commit = where.git_commit
    rows = {
        "device": where.device,
        "host": where.host,
        "commit": None if commit is None else commit + ("" if where.git_clean else " with uncommitted changes"),
        "data": trial.data_fingerprint,
        "started": trial.started_at.isoformat(" ", "seconds") if trial.started_at else None,
        "ended": trial.finished_at.isoformat(" ", "seconds") if trial.finished_at else None,
        **where.versions,
    }
    told = tuple((name, value or MISSING) for name, value in rows.items())
    plain_table(Grid(("what", "value"), (told,), frozenset((0, 1))), "Where the trial ran")

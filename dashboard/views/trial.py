"""Trial: one training run, with its outcome, curve, recordings of blocks, spec, environment and command to rerun it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import pandas as pd
import streamlit as st

from ablate.analysis.answer_rows import OF_VARIANTS, answer_sentence
from ablate.analysis.changes import variant_titles
from ablate.analysis.curves import AXES, Band, band, line
from ablate.analysis.numbers import MISSING, count, decimals_for, duration, fixed, percent, plural, scaled
from ablate.analysis.report import StudyReport
from ablate.analysis.status import device_of
from ablate.devices import utilisation
from ablate.errors import NotFoundError
from ablate.locations import DEFAULT_STORE
from ablate.processes import hide_passwords
from ablate.render.blocks import Grid
from ablate.render.document import names_note
from ablate.render.figures.curves import draw_bands, what_is_cut
from ablate.render.figures.style import PANEL_NAME, Look, Palette, Spec, by_look, layers, mark, number, wrapped
from ablate.render.figures.style import names as names_of
from ablate.spec.suite import at_task, split_task
from ablate.store import CurvePoint, PlannedTrial, StudyRecord, TrialRecord, TrialState, VariantRecord
from ablate.store.records import USAGE
from dashboard.shared.evidence import baseline_of, evidence_link, show_differences
from dashboard.shared.exports import (
    Maker,
    chart,
    code,
    export,
    figure_files,
    is_narrow,
    plain_table,
    table_files,
)
from dashboard.shared.frame import begin_page, choose_in_words, link
from dashboard.shared.pictures import BlockPicture, block_files, block_pictures
from dashboard.shared.recordings import show_inside
from dashboard.shared.results import answer, can_write, edit_mark, on_task, report_on, sample_box
from dashboard.shared.schema import to_yaml
from dashboard.shared.store import LIVE, location, moves, report, store
from dashboard.shared.store import record as read_record
from dashboard.shared.text import escape, prose
from dashboard.views import Entry

ENTRY = Entry("Trial", ":material/science:", "This study", 90)

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
VALIDATION, TRAINING, BESIDE = "validation loss", "training loss", "baseline, same seed"
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
    study = begin_page("")
    record, head = read_record(study), st.container()
    key = _choose(record)
    trial = None if key is None else store().trials([key]).get(key)
    if key is None or trial is None:
        head.title("Trial", anchor=False)
        if key is not None:
            st.badge(TrialState.WAITING, color="gray")
            st.info("This trial has not begun yet.")
        return
    _, task = split_task(_variant(record, trial).name)
    record = on_task(study, task)
    variant = _variant(record, trial)
    name = variant_titles(record).get(variant.name, variant.name) or "a variant of no study"
    on = f" on {task}" if task else ""
    head.title(f"Trial: {escape(name + on)}, seed {trial.seed}", anchor=False)
    if said := names_note(answer(record.name), name):
        st.caption(prose(said))
    st.fragment(_live, run_every=LIVE if moves(trial) else None)(record, variant, key, task)
    if variant.name != baseline_of(record, variant).name:
        st.header("Config: what differs from the baseline", anchor=False)
        show_differences(record, variant)
    _links(record, variant, task)
    edit_mark("trial", key)
    alone = variant.name == baseline_of(record, variant).name
    left, right = st.columns(2, gap="large") if alone else (st.container(), st.container())
    with left:
        st.header("Block", anchor=False)
        _blocks(record, variant)
    with right:
        _usage(key)
    if not moves(trial):
        st.fragment(show_inside)(key, variant.name or "the trial")
    if can_write(record, variant) and trial.state is TrialState.FINISHED:
        st.header("Samples", anchor=False)
        sample_box({variant.name: key})
    with st.expander("Key, full spec, environment, and how to run it again", key="identity"):
        _identity(variant, trial)


def _identity(variant: VariantRecord, trial: TrialRecord) -> None:
    """What names the trial, what was trained and where: lines to copy."""
    st.caption("Its key")
    code(trial.key)
    place = location()
    where = "" if place == DEFAULT_STORE else f" --store {hide_passwords(place)}"
    st.caption("Run it again")
    code(f"ablate reproduce {trial.key[:12]}{where}")
    if trial.environment is not None:
        st.caption("It was first run by")
        code(trial.environment.command)
    _environment(trial)
    text = to_yaml(variant.spec)
    st.caption(f"The spec of its variant, {variant.name}" if variant.name else "Its spec")
    code(text)
    files: dict[str, Maker] = {f"variant_{variant.hash[:12]}.yaml": lambda: text}
    export(files, "spec")


def _blocks(record: StudyRecord, variant: VariantRecord) -> None:
    """Show the block of the trial, compared with that of the baseline."""
    titles, baseline = variant_titles(record), baseline_of(record, variant)
    name, first = titles.get(variant.name, "block"), (titles[baseline.name], baseline.spec.get("model", {}))
    if variant.name == baseline.name:
        block_pictures([BlockPicture(*first)])
        return
    block_pictures([BlockPicture(*first), BlockPicture(name, variant.spec.get("model", {}), versus=first)])


def _choose(record: StudyRecord) -> str | None:
    """The key of the trial that the address or the select boxes name."""
    planned_trials = _planned(record)
    names = list(dict.fromkeys(trial.variant for trial in planned_trials))
    with st.popover("Choose a trial", icon=":material/science:") if is_narrow() else st.container():
        boxes = st.columns([3, 1, 2], vertical_alignment="bottom")
    asked = boxes[2].text_input("Or by its key", key="trial", bind="query-params", placeholder="its first characters")
    if asked:
        try:
            key = store().trial(asked.strip()).key
        except NotFoundError as error:
            st.error(prose(str(error)))
            return None
        for planned in (one for one in planned_trials if one.key == key):
            with boxes[0]:
                link("trial", "Choose by variant and seed", variant=planned.variant, seed=str(planned.seed))
        return key
    if not names:
        st.info("This study has planned no trial yet.")
        return None
    first, seed = _first(record, planned_trials)
    variant = choose_in_words(boxes[0].selectbox, "Variant", "variant", names, first, variant_titles(record))
    seeds = {str(trial.seed): trial.key for trial in planned_trials if trial.variant == variant}
    begin = seed if variant == first and seed in seeds else next(iter(seeds))
    return seeds[choose_in_words(boxes[1].selectbox, "Seed", "seed", [*seeds], begin, {})]


def _first(record: StudyRecord, planned_trials: Sequence[PlannedTrial]) -> tuple[str, str]:
    """The variant and seed that are shown before a visitor chooses: a failed trial, else of the strongest finding."""
    names = dict.fromkeys(trial.variant for trial in planned_trials)
    for failure in report(record.name).progress.failures:
        if failure.variant in names:
            return failure.variant, str(failure.seed)
    found = {
        row.variant: row for group in answer(record.name).groups for row in group.rows if row.difference is not None
    }
    by_size = sorted(found.values(), key=lambda row: (row.bound is None, -abs(row.difference or 0.0)))
    trained = (name for row in by_size for name in names if row.variant in (name, split_task(name)[0]))
    first = next(trained, next(iter(names)))
    fresh = next((row.confirmed for row in report(record.name).variants if row.name == first), ())
    return first, str(fresh[0]) if fresh else ""


def _planned(record: StudyRecord) -> tuple[PlannedTrial, ...]:
    """The trials that are compared, those that confirm among them."""
    return (*record.planned, *record.confirm_trials)


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
    block = block_files(f"variant_{variant.hash[:12]}", variant.name or "block", variant.spec.get("model", {}))
    files: dict[str, Maker] = {**block}
    if not (used := _samples(key)).empty:
        files |= table_files(f"trial_{key[:12]}_usage", used)
    if points:
        left, right = st.columns([3, 2], gap="large")
        with right:
            files |= _among(record, variant, trial)
        with left:
            files = _curve(record, points, variant, trial) | files
    elif trial.state is not TrialState.FAILED:
        st.caption("No point of its curve has been recorded yet.")
    export(files, "log")


def _head(record: StudyRecord, variant: VariantRecord, trial: TrialRecord, task: str) -> None:
    """The state, the verdict on the variant, why the trial ended, and its numbers."""
    study_report = report_on(record.name, task)
    row = next((row for row in study_report.variants if row.name == variant.name), None)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(trial.state, color=STATES[trial.state])  # type: ignore[arg-type]
        if row is not None and row.verdict_sentence:
            word, _, reason = answer_sentence(row).partition(": ")
            word = OF_VARIANTS.get(word, word)
            on = ", on fresh seeds" * bool(row.confirmed)
            said = f"The verdict on {prose(study_report.titles[row.name])}{on}: **{prose(word)}**" + (
                f", {prose(reason.removeprefix(word).strip())}" if reason else ""
            )
            st.markdown(f"{said} ({evidence_link('evidence', at_task(row.name, task))})", width="content")
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
    _facts(record, variant, trial, study_report)


def _facts(record: StudyRecord, variant: VariantRecord, trial: TrialRecord, study_report: StudyReport) -> None:
    """The numbers of the trial in a row, less important ones below."""
    metric, baseline = record.objective["metric"], _same_seed(record, variant, trial.seed)
    facts, decimals = st.container(horizontal=True), max(3, decimals_for(study_report.margin, ()))
    if (value := trial.metrics.get(metric)) is not None:
        better = f"{'lower' if record.objective['direction'] == 'minimize' else 'higher'} is better"
        facts.metric(escape(metric), fixed(value, decimals), better, delta_color="off", delta_arrow="off",
                     width="content")  # fmt: skip
        if baseline is not None and (other := baseline.metrics.get(metric)) is not None:
            facts.metric("Minus the baseline's, same seed", fixed(value - other, decimals, sign=True),
                         f"baseline {fixed(other, decimals)}", delta_color="off", delta_arrow="off",
                         width="content")  # fmt: skip
    if place := _rank(record, variant, trial):
        facts.metric("Rank among seeds", place, "1 is the best", delta_color="off", delta_arrow="off", width="content")
    if not moves(trial):
        facts.metric("Training", duration(trial.seconds), f"{trial.steps:,} steps", delta_color="off",
                     delta_arrow="off", width="content")  # fmt: skip
    told = []
    if variant.parameters:
        row = next((row for row in study_report.variants if row.name == variant.name), None)
        change = None if row is None or not row.parameter_change else f"{percent(row.parameter_change)} vs baseline"
        told.append(_with(f"{count(variant.parameters)} parameters", change))
    if (rate := variant.spec.get("training", {}).get("optimizer", {}).get("lr")) is not None:
        other = baseline_of(record, variant).spec.get("training", {}).get("optimizer", {}).get("lr", rate)
        beside = f"baseline {other:.3g}" if other != rate else ""
        tuned = "tuned" if study_report.evidence.tuning is not None else ""
        facts.metric("Learning rate", f"{rate:.3g}", "; ".join(filter(None, (tuned, beside))) or None,
                     delta_color="off", delta_arrow="off", width="content")  # fmt: skip
    for name, value in trial.metrics.items():
        if name != metric:
            told.append(f"{name.removeprefix('val_').replace('_', ' ')} {value:.5g}")
    st.caption(prose(" · ".join((*told, *_cost(variant, trial)))))


def _with(said: str, *more: str | None) -> str:
    """A fact, with what else is known of it in brackets."""
    known = "; ".join(filter(None, more))
    return f"{said} ({known})" if known else said


def _cost(variant: VariantRecord, trial: TrialRecord) -> Iterator[str]:
    """What the training cost."""
    if moves(trial):
        return
    timed = trial.seconds >= TIMED_FROM and trial.flops > 0
    if trial.tokens:
        yield _with(f"{count(trial.tokens)} tokens", f"{trial.tokens / trial.seconds:,.0f} a second" if timed else None)
    speed = ""
    if timed:
        share = utilisation(trial.flops, trial.seconds, device_of(trial)[1], _precision(variant))
        peak = f", {share:.1%} of the peak" if share is not None else ""
        speed = f"{scaled(trial.flops / trial.seconds)}FLOP/s{peak}"
    # The arithmetic is unknown of the user's own trainer.
    if trial.flops:
        yield _with(f"{scaled(trial.flops)}FLOP", speed)


def _links(record: StudyRecord, variant: VariantRecord, task: str) -> None:
    """Links to the variant on other pages, beside its baseline."""
    if not variant.name:
        return
    sides = [*dict.fromkeys((baseline_of(record, variant).name, variant.name))]
    where = {"task": task} if task else {}
    with st.container(horizontal=True):
        if len(sides) > 1:
            link("compare", "Compare with the baseline", sides=sides, **where)
        link("curves", "Curves", variants=sides, **where)


def _same_seed(record: StudyRecord, variant: VariantRecord, seed: int) -> TrialRecord | None:
    """The trial of the variant's baseline with the same seed; None without one, and for a baseline itself."""
    name = baseline_of(record, variant).name
    key = next((plan.key for plan in _planned(record) if (plan.variant, plan.seed) == (name, seed)), None)
    return None if key is None or name == variant.name else store().trials([key]).get(key)


def _alike(record: StudyRecord, trial: TrialRecord, names: Collection[str]) -> list[PlannedTrial]:
    """The trials of these variants on the seeds that the trial is of: fresh ones, or those that are compared."""
    fresh = any(one.key == trial.key for one in record.confirm_trials)
    return [one for one in (record.confirm_trials if fresh else record.planned) if one.variant in names]


def _rank(record: StudyRecord, variant: VariantRecord, trial: TrialRecord) -> str:
    """Which of the seeds of its variant it is, from the best: `2 of 5`; empty where it stands alone."""
    metric, sign = record.objective["metric"], 1 if record.objective["direction"] == "minimize" else -1
    ended = store().trials([one.key for one in _alike(record, trial, (variant.name,))])
    values = {key: sign * one.metrics[metric] for key, one in ended.items() if metric in one.metrics}
    if len(values) < 2 or trial.key not in values:
        return ""
    return f"{1 + sum(value < values[trial.key] for value in values.values())} of {len(values)}"


def _among(record: StudyRecord, variant: VariantRecord, trial: TrialRecord) -> dict[str, Maker]:
    """Draw the trial among the other seeds of its variant and of the baseline, and return the figure as files."""
    names = dict.fromkeys((baseline_of(record, variant).name, variant.name))
    plans = _alike(record, trial, names)
    metric, titles, trials = record.objective["metric"], variant_titles(record), store().trials([p.key for p in plans])
    rows: list[Spec] = [
        {"name": wrapped(titles[one.variant], PANEL_NAME), "seed": one.seed, "value": trials[one.key].metrics[metric],
         "said": "this trial" if one.key == trial.key else ""}
        for one in plans if one.key in trials and metric in trials[one.key].metrics
    ]  # fmt: skip
    if len(rows) < 2 or all(row["said"] == "" for row in rows):
        return {}

    def draw(palette: Palette) -> Spec:
        looks, order = palette.variants(record), {wrapped(titles[name], PANEL_NAME): name for name in names}
        x, y = names_of("name", list(order)), number("value", metric)
        x["axis"] |= {"labelAngle": 0, "labelExpr": "split(datum.label, '\\n')"}
        tone = by_look("name", {title: looks.get(name) or palette.look(0) for title, name in order.items()}, "color",
                       legend=False)  # fmt: skip
        tip = [{"field": key, "title": key} for key in ("seed", "value")]
        this = [row for row in rows if row["said"]]
        return layers(
            [
                mark("tick", rows, {"x": x, "y": {**y, "aggregate": "mean"}, **tone}, width=40, thickness=2),
                mark("point", rows, {"x": x, "y": y, "tooltip": tip, **tone}, filled=False, size=60),
                mark("point", this, {"x": x, "y": y, **tone}, size=130),
                mark("text", this, {"x": x, "y": y, "text": {"field": "said"}}, align="left", dx=26),
            ],
            300,
        )

    others = "; ".join(f"{titles[name]}: {sum(p.variant == name for p in plans)} seeds" for name in names)
    st.markdown(f"**{prose(f'{metric} of each seed')}**")
    chart(draw, "trial-seeds", f"{metric} of this trial among the seeds of its variant and of the baseline. {others}")
    st.caption("A line is the mean over the seeds.")
    return figure_files(f"trial_{trial.key[:12]}_seeds", draw)


def _curve(
    record: StudyRecord,
    points: tuple[CurvePoint, ...],
    variant: VariantRecord,
    trial: TrialRecord,
) -> dict[str, Maker]:
    """Draw both losses beside the baseline's, and list every recorded point; both as files."""
    st.markdown("**Loss by step**")
    losses = {VALIDATION: band([line(points)]), TRAINING: band([line(points, loss="train_loss")])}
    if (baseline := _same_seed(record, variant, trial.seed)) is not None:
        losses[BESIDE] = band([line(store().curves([baseline.key]).get(baseline.key, ()))])
    known: dict[str, Band] = {said: one for said, one in losses.items() if one.mean}

    def draw(palette: Palette) -> Spec:
        names, known_looks = (variant.name, baseline_of(record, variant).name), palette.variants(record)
        colour, beside = (known_looks.get(name, palette.look(0)).colour for name in names)
        looks = {VALIDATION: Look(colour, (1, 0), "circle"), TRAINING: Look(palette.grey, (1, 0), "triangle-up"),
                 BESIDE: Look(beside, (6, 3), "diamond")}  # fmt: skip
        return draw_bands(known, looks, palette, ("steps", "loss"), height=300, named=not is_narrow())

    last = next((point for point in reversed(points) if point.val_loss is not None), points[-1])
    ends = f", {last.val_loss:.5g} at step {last.step:,}" if last.val_loss is not None else ""
    said = f"Training and validation loss of {variant.name}, seed {trial.seed} against steps{ends}"
    chart(draw, "trial-curve", said)
    if cut := what_is_cut(known.values()):
        st.caption(cut)
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
    return table_files(f"trial_{trial.key[:12]}", table) | figure_files(f"trial_{trial.key[:12]}", draw)


def _samples(key: str) -> pd.DataFrame:
    """A row for each sample of the resources that the process that trained it used."""
    used = (one for one in store().recordings(key) if USAGE in one.values)
    return pd.DataFrame([{"step": one.step, **one.values[USAGE]} for one in used])


def _usage(key: str) -> None:
    """Show the resources used by the process that trained it; nothing if there are no samples."""
    rows = _samples(key)
    if rows.empty:
        return
    st.header("Use of the machine", anchor=False)
    facts = st.container(horizontal=True)
    for name, (said, show_number, whole) in USED.items():
        if name in rows:
            series = rows[name].dropna()
            told = show_number(float(series.agg(whole)))
            facts.metric(f"{said}, {WHOLE[whole]}", told, chart_data=series if len(series) > 1 else None,
                         width="content")  # fmt: skip
    st.caption(
        "Of the process that trained it, other trials that it trained at the same time included: "
        f"{plural(len(rows), 'sample')}, ten seconds apart or more, from step {rows['step'].iloc[0]:,} to "
        f"{rows['step'].iloc[-1]:,}. The training time above is the share of this trial."
    )


def _environment(trial: TrialRecord) -> None:
    st.caption("Where it ran")
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

"""Trial: one training run, with its outcome, curve, recordings of blocks, spec, environment and command to rerun it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from statistics import fmean

import pandas as pd
import streamlit as st

from ablate.analysis.answer_rows import OF_VARIANTS, answer_sentence, tuned_paths, verdict_word
from ablate.analysis.changes import variant_titles
from ablate.analysis.curves import AXES, Band, band, line
from ablate.analysis.diff import differences
from ablate.analysis.numbers import (
    MISSING,
    count,
    counted,
    decimals_for,
    duration,
    fixed,
    listed,
    plural,
    scaled,
)
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
from ablate.spec.paths import leaves, short_path
from ablate.spec.suite import at_task, split_task
from ablate.store import CurvePoint, PlannedTrial, StudyRecord, TrialRecord, TrialState, VariantRecord
from ablate.store.records import USAGE
from dashboard.shared.evidence import baseline_of, evidence_link, said_value
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
from dashboard.shared.frame import address, begin_page, choose_in_words, link
from dashboard.shared.pictures import BlockPicture, block_files, block_pictures
from dashboard.shared.recordings import show_inside
from dashboard.shared.results import answer, can_write, edit_mark, on_task, report_on, sample_box
from dashboard.shared.schema import to_yaml
from dashboard.shared.store import LIVE, location, moves, report, store
from dashboard.shared.store import record as read_record
from dashboard.shared.text import escape, prose
from dashboard.views import Entry

ENTRY = Entry("Trial", ":material/science:", "This study", 90)

TIMED_FROM, FLAT = 10.0, 1.1
"""Seconds of training from which on a trial's clock tells its rate, though not how variants compare; and the factor by
which samples of a resource differ at least if they are drawn."""
STATES = {
    TrialState.WAITING: "gray",
    TrialState.RUNNING: "blue",
    TrialState.FINISHED: "gray",
    TrialState.DIVERGED: "violet",
    TrialState.PRUNED: "gray",
    TrialState.FAILED: "red",
}
VALIDATION, TRAINING, BESIDE = "validation loss", "training loss", "baseline, same seed"
GIB = 2.0**30
WHOLE = {"mean": "mean", "max": "highest"}
USED: dict[str, tuple[str, float, Callable[[float], str], str]] = {
    "cores": ("Cores in use", 1.0, "{:.2f}".format, "mean"),
    "memory": ("Memory", GIB, "{:.2f} GiB".format, "max"),
    "gpu": ("GPU", 0.01, "{:.0f} %".format, "mean"),
    "gpu_memory": ("GPU memory", GIB, "{:.2f} GiB".format, "max"),
}
"""Samples: label, unit, format of a number of these, and the summary of all samples."""
MAIN = (
    *(f"model.{name}" for name in ("depth", "width", "heads", "block.mixer.kind")),
    *(f"task.{name}" for name in ("kind", "data", "context")),
    *(f"training.{name}" for name in ("steps", "batch_size", "optimizer.kind", "optimizer.lr", "schedule.kind")),
    "training.precision",
)
"""Settings that are shown of every trial; the whole spec has all."""
MOST_CHANGES = 7
"""Settings that differ from the baseline's and are shown; the page Compare has all."""


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
    if changes := variant.spec.get("model", {}) != baseline_of(record, variant).spec.get("model", {}):
        st.header("Block beside the baseline's", anchor=False)
        _blocks(record, variant)
    if not moves(trial):
        st.fragment(show_inside)(key, variant.name or "the trial")
    if can_write(record, variant) and trial.state is TrialState.FINISHED:
        st.header("Samples", anchor=False)
        sample_box({variant.name: key})
    if not changes:
        with st.expander("Block"):
            _blocks(record, variant)
    edit_mark("trial", key)
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
    asked = boxes[2].text_input("Or the key of a trial", key="trial", bind="query-params",
                                placeholder="its first characters are enough")  # fmt: skip
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
    study_report = report_on(record.name, task)
    _head(record, variant, trial, study_report, task)
    points, used = store().curves([key])[key], _samples(key)
    files: dict[str, Maker] = {}
    left, right = st.columns([3, 2], gap="small" if is_narrow() else "large")
    with left:
        if points:
            files |= _curve(record, points, variant, trial)
        elif trial.state is not TrialState.FAILED:
            st.caption("No point of its curve has been recorded yet.")
        files |= _among(record, variant, trial)
    with right:
        plain_table(_outcome(record, variant, trial, study_report), "What the trial reached and cost")
        if (config := _config(record, variant)).groups[0]:
            with st.expander("Config") if is_narrow() else st.container():
                plain_table(config, "Config")
    files |= _usage(used, key)
    if points:
        _log(points)
    files |= block_files(f"variant_{variant.hash[:12]}", variant.name or "block", variant.spec.get("model", {}))
    with st.container(horizontal=True, vertical_alignment="center"):
        export(files, "log")
        _links(record, variant, task)


def _head(record: StudyRecord, variant: VariantRecord, trial: TrialRecord, of: StudyReport, task: str) -> None:
    """The outcome in a sentence, what all seeds say of the variant, and why the trial ended."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(trial.state, color=STATES[trial.state])  # type: ignore[arg-type]
        if reached := _reached(record, variant, trial, of):
            st.markdown(f"**{prose(reached)}**", width="content")
    if said := _verdict(record, variant, of, task):
        st.markdown(said)
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


def _reached(record: StudyRecord, variant: VariantRecord, trial: TrialRecord, of: StudyReport) -> str:
    """What the trial reached, and how far that is from the baseline's with the same seed; of a baseline, its mean."""
    metric, decimals = record.objective["metric"], _decimals(of)
    if (value := trial.metrics.get(metric)) is None:
        return ""
    beside, what = _same_seed(record, variant, trial.seed), "the baseline's with the same seed"
    other = None if beside is None else beside.metrics.get(metric)
    values = [one.metrics[metric] for one in _siblings(record, variant, trial).values()]
    if variant.name == baseline_of(record, variant).name and len(values) > 1:
        other = fmean(values)
        what = f"the mean of its {len(values)} seeds"
    if other is None:
        return f"{metric} {fixed(value, decimals)}"
    gap = fixed(abs(value - other), decimals)
    where = f"{gap} {'above' if value > other else 'below'}" if float(gap) else "equal to"
    return f"{metric} {fixed(value, decimals)}, {where} {what}"


def _verdict(record: StudyRecord, variant: VariantRecord, of: StudyReport, task: str) -> str:
    """What all seeds say of the variant, for Markdown; of the baseline, what the study says of those beside it."""
    row = next((row for row in of.variants if row.name == variant.name), None)
    alone = "; one seed alone decides nothing."
    if row is not None and row.verdict_sentence:
        word, _, reason = answer_sentence(row).partition(": ")
        word = OF_VARIANTS.get(word, word)
        seeds = plural(len(row.confirmed or row.finished), "fresh seed" if row.confirmed else "seed")
        why = f", {prose(reason.removeprefix(word).strip())}" if reason else ""
        link_to = evidence_link("evidence", at_task(row.name, task))
        return f"The verdict on {prose(of.titles[row.name])}, on {seeds}: **{prose(word)}**{why} ({link_to}){alone}"
    counts = Counter[str]()
    for group in answer(record.name, task).groups:
        counts.update(OF_VARIANTS.get(word, word) for word in (verdict_word(group.key, row) for row in group.rows))
    if variant.name != of.baseline.name or not counts:
        return ""
    link_to = f"[answer]({address('answer')})"
    found = prose(listed(counted(counts.items())))
    beside = plural(counts.total(), "variant")
    return f"The study compares {beside} with this baseline over all seeds: {found} ({link_to}){alone}"


def _decimals(of: StudyReport) -> int:
    return max(3, decimals_for(of.margin, ()))


def _outcome(record: StudyRecord, variant: VariantRecord, trial: TrialRecord, of: StudyReport) -> Grid:
    """What the trial reached and cost, beside what the baseline's with the same seed reached.

    The clocks of single trials do not tell how variants compare, so the times are those of this one alone.
    """
    metric, decimals = record.objective["metric"], _decimals(of)
    beside = _same_seed(record, variant, trial.seed)
    trials = [trial] if beside is None else [trial, beside]
    rows: dict[str, list[str]] = {}

    def put(name: str, *cells: str | None) -> None:
        if any(cells):
            rows[name] = [cell or MISSING for cell in cells] + [""] * (len(trials) - len(cells))

    value, other = trial.metrics.get(metric), None if beside is None else beside.metrics.get(metric)
    put(metric, *(None if x is None else fixed(x, decimals) for x in (value, other)[: len(trials)]))
    if value is not None and other is not None:
        put("minus the baseline's", fixed(value - other, decimals, sign=True))
    put("rank among its seeds, 1 is best", _rank(record, variant, trial))
    for name in (name for name in trial.metrics if name != metric):
        values = [one.metrics.get(name) for one in trials]
        put(
            name.removeprefix("val_").replace("_", " "),
            *(None if x is None else f"{x:.4g}" if abs(x) < 1000 else f"{x:,.1f}" for x in values),
        )
    sizes = (variant.parameters, baseline_of(record, variant).parameters)[: len(trials)]
    put("parameters", *(count(size) if size else None for size in sizes))
    if not moves(trial):
        put("training time", duration(trial.seconds))
        put(
            "FLOP", *(scaled(one.flops).strip() if one.flops else None for one in trials)
        )  # unknown of a user's trainer
        if trial.seconds >= TIMED_FROM and trial.flops > 0:
            put("tokens a second", f"{trial.tokens / trial.seconds:,.0f}" if trial.tokens else None)
            share = utilisation(trial.flops, trial.seconds, device_of(trial)[1], _precision(variant))
            put("share of the peak FLOP/s", None if share is None else f"{share:.1%}")
    titles = ("outcome", "this trial", "baseline, same seed")[: 1 + len(trials)]
    return Grid(titles, (tuple((name, *cells) for name, cells in rows.items()),), frozenset({0}))


def _config(record: StudyRecord, variant: VariantRecord) -> Grid:
    """The settings that differ from those of the baseline, then the main ones that do not."""
    baseline, own = baseline_of(record, variant), leaves(variant.spec)
    changes = () if baseline.name == variant.name else differences(baseline.spec, variant.spec)
    tuned = tuned_paths(record)

    def said(path: str) -> str:
        """A path with room to break its line: `block › norm › kind`."""
        short = short_path(path).removeprefix("training.").removeprefix("model.").replace(".", " › ")
        return f"{'≠ ' * (path in known)}{short}{', tuned for each variant' * (path in tuned)}"

    changed = sorted(
        changes, key=lambda one: (one.path not in tuned, not one.path.endswith("kind"), one.path.count("."))
    )
    named = changed if len(changed) <= MOST_CHANGES else changed[: MOST_CHANGES - 1]
    known = {one.path for one in changed}
    rows = [(said(one.path), *(said_value(one.values.get(side)) for side in (1, 0))) for one in named]
    if rest := len(changed) - len(named):
        rows.append((f"≠ {rest} more", "", ""))
    same = [
        path
        for path in (MAIN if record.knows_models else [path for path in own if not path.startswith("trainer.")])
        if path not in known and own.get(path) is not None
    ]
    rows += [(said(path), said_value(own[path]), "same") for path in same[: len(MAIN)]]
    grid = Grid(("config", "this trial", "baseline"), (tuple(rows),), frozenset({0}))
    return grid if changed else grid.only(0, 1)


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


def _siblings(record: StudyRecord, variant: VariantRecord, trial: TrialRecord) -> dict[str, TrialRecord]:
    """The trials of its variant that have a result, itself among them."""
    ended = store().trials([one.key for one in _alike(record, trial, (variant.name,))])
    return {key: one for key, one in ended.items() if record.objective["metric"] in one.metrics}


def _rank(record: StudyRecord, variant: VariantRecord, trial: TrialRecord) -> str:
    """Which of the seeds of its variant it is, from the best: `2 of 5`; empty where it stands alone."""
    metric, sign = record.objective["metric"], 1 if record.objective["direction"] == "minimize" else -1
    values = {key: sign * one.metrics[metric] for key, one in _siblings(record, variant, trial).items()}
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
        x, y = number("value", metric, axis={"tickCount": 5}), names_of("name", list(order))
        y["axis"] |= {"labelExpr": "split(datum.label, '\\n')"}
        tone = by_look("name", {title: looks.get(name) or palette.look(0) for title, name in order.items()}, "color",
                       legend=False)  # fmt: skip
        tip = [{"field": key, "title": key} for key in ("seed", "value")]
        this = [row for row in rows if row["said"]]
        return layers(
            [
                mark("tick", rows, {"x": {**x, "aggregate": "mean"}, "y": y, **tone}, height=26, thickness=2),
                mark("point", rows, {"x": x, "y": y, "tooltip": tip, **tone}, filled=False, size=60),
                mark("point", this, {"x": x, "y": y, **tone}, size=130),
                mark("text", this, {"x": x, "y": y, "text": {"field": "said"}}, baseline="bottom", dy=-15),
            ],
            52 * len(order),
        )

    others = "; ".join(f"{titles[name]}: {sum(p.variant == name for p in plans)} seeds" for name in names)
    st.markdown(f"**{prose(f'{metric} of each seed')}**; the line is their mean")
    chart(draw, "trial-seeds", f"{metric} of this trial among the seeds of its variant and of the baseline. {others}")
    return figure_files(f"trial_{trial.key[:12]}_seeds", draw)


def _curve(
    record: StudyRecord,
    points: tuple[CurvePoint, ...],
    variant: VariantRecord,
    trial: TrialRecord,
) -> dict[str, Maker]:
    """Draw both losses beside the baseline's; the figure and every recorded point as files."""
    losses = {VALIDATION: band([line(points)]), TRAINING: band([line(points, loss="train_loss")])}
    if (baseline := _same_seed(record, variant, trial.seed)) is not None:
        losses[BESIDE] = band([line(store().curves([baseline.key]).get(baseline.key, ()))])
    known: dict[str, Band] = {said: one for said, one in losses.items() if one.mean}
    if not known:
        return table_files(f"trial_{trial.key[:12]}", _table(points))
    st.markdown("**Loss by step**")

    def draw(palette: Palette) -> Spec:
        names, known_looks = (variant.name, baseline_of(record, variant).name), palette.variants(record)
        colour, beside = (known_looks.get(name, palette.look(0)).colour for name in names)
        other = next(look.colour for look in map(palette.look, (0, 1)) if look.colour != colour)
        looks = {VALIDATION: Look(colour, (1, 0), "circle"), TRAINING: Look(other, (2, 2), "triangle-up"),
                 BESIDE: Look(beside, (6, 3), "diamond")}  # fmt: skip
        return draw_bands(
            known, looks, palette, ("steps", "loss"), height=240 if is_narrow() else 420, named=not is_narrow()
        )

    last = next((point for point in reversed(points) if point.val_loss is not None), points[-1])
    ends = f", {last.val_loss:.5g} at step {last.step:,}" if last.val_loss is not None else ""
    said = f"Training and validation loss of {variant.name}, seed {trial.seed} against steps{ends}"
    chart(draw, "trial-curve", said)
    if cut := what_is_cut(known.values()):
        st.caption(cut)
    return table_files(f"trial_{trial.key[:12]}", _table(points)) | figure_files(f"trial_{trial.key[:12]}", draw)


def _table(points: tuple[CurvePoint, ...]) -> pd.DataFrame:
    """Every recorded point of a curve."""
    return pd.DataFrame(
        [
            {
                **{name: at(point) for name, at in AXES.items()},
                "train_loss": point.train_loss,
                "val_loss": point.val_loss,
            }
            for point in points
        ]
    )


def _log(points: tuple[CurvePoint, ...]) -> None:
    """The points of the curve, a click away."""
    log = st.expander(f"Log: {len(points):,} points", key="log", on_change="rerun")
    if log.open:
        log.dataframe(_table(points), hide_index=True, placeholder=MISSING, alt="Every recorded point of the curve")


def _samples(key: str) -> pd.DataFrame:
    """A row for each sample of the resources that the process that trained it used."""
    used = (one for one in store().recordings(key) if USAGE in one.values)
    return pd.DataFrame([{"step": one.step, **one.values[USAGE]} for one in used])


def _usage(rows: pd.DataFrame, key: str) -> dict[str, Maker]:
    """Draw the resources used by the process that trained it, and return the samples as files; none without any."""
    if rows.empty:
        return {}
    known = [name for name in USED if name in rows]
    columns = st.columns(min(2, len(known)))
    for place, name in enumerate(known):
        said, unit, show_number, whole = USED[name]
        series = rows[["step", name]].dropna()
        rows_of = [{"step": step, "used": used / unit} for step, used in zip(series["step"], series[name], strict=True)]
        top = 1.2 * max((row["used"] for row in rows_of), default=1.0) or 1.0

        def draw(palette: Palette, drawn: list[Spec] = rows_of, top: float = top) -> Spec:
            axes = {"x": number("step", "steps"), "y": number("used", domain=(0, top), axis={"tickCount": 4})}
            colour = palette.look(0).colour
            return layers([mark(kind, drawn, axes, color=colour) for kind in ("line", "point")], 110)

        with columns[place % len(columns)]:
            told = show_number(float(series[name].agg(whole)) / unit)
            st.markdown(f"**{said}**, {WHOLE[whole]}: {told}")
            if series[name].max() > FLAT * series[name].min():
                chart(draw, f"usage-{name}", f"{said} by step, {WHOLE[whole]} {told}")
    st.caption(
        f"Measured on the process that trained this trial, with others that it trained at the same time; "
        f"{plural(len(rows), 'sample')}, from step {rows['step'].iloc[0]:,} to {rows['step'].iloc[-1]:,}."
    )
    return table_files(f"trial_{key[:12]}_usage", rows)


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

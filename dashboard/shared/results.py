"""Results of designs and the trials of a study, cached until it changes; marks; samples that trained decoders write."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from ablate.analysis import search
from ablate.analysis.answer import Answer, answer_of
from ablate.analysis.changes import variant_titles
from ablate.analysis.effects import StudyEffects, StudyImportances, effects_of, importances_of
from ablate.analysis.numbers import counted
from ablate.analysis.pareto import Front, front_of
from ablate.analysis.path import RemovalPath, path_of
from ablate.analysis.report import StudyReport
from ablate.analysis.runs import VariantRuns, baselines_of, read_confirming, read_runs
from ablate.analysis.scaling import main_part
from ablate.analysis.slices import Slice, crosses, factors_of, slices_of
from ablate.analysis.suite import reader_of, tasks_of
from ablate.errors import StoreError
from ablate.processes import python_command
from ablate.spec.suite import at_task, split_task
from ablate.store import Mark, PlannedTrial, StudyRecord, TrialRecord, TrialState, VariantRecord
from ablate.store.writing import Marked
from dashboard.shared.exports import code
from dashboard.shared.store import location, options, read_only, record, report, stamp, store
from dashboard.shared.text import escape, prose


@st.cache_resource(show_spinner=False, max_entries=8)
def _runs(location: str, study: str, at: tuple[Any, ...]) -> dict[str, VariantRuns]:
    study_record = record(study)
    return read_runs(store(), study_record, study_record.objective["metric"])


def runs(study: str) -> Mapping[str, VariantRuns]:
    """Variant name to its trials.

    Raises:
        NotFoundError: There is no such study.
    """
    return _runs(location(), study, stamp(study))


@st.cache_resource(show_spinner=False, max_entries=8)
def _compared(location: str, study: str, at: tuple[Any, ...]) -> tuple[StudyRecord, Mapping[str, VariantRuns]]:
    reader = reader_of(store(), study)
    study_record = reader.study(study)
    if study_record.space.get("tasks"):
        return study_record, read_runs(reader, study_record, study_record.objective["metric"])
    return study_record, runs(study)


def compared(study: str) -> tuple[StudyRecord, Mapping[str, VariantRuns]]:
    """What the objective of a study compares, with its trials: of a suite the mean scores of its variants.

    Raises:
        NotFoundError: There is no such study.
    """
    return _compared(location(), study, stamp(study))


def on_task(study: str, task: str) -> StudyRecord:
    """The part of a suite on one of its tasks, in which variants have their bare names; any other study as it is.

    Raises:
        NotFoundError: There is no such study.
    """
    study_record = record(study)
    return tasks_of(study_record).get(task, study_record)


def report_on(study: str, task: str) -> StudyReport:
    """The report of a suite on one of its tasks; that of any other study.

    Raises:
        NotFoundError: There is no such study.
    """
    study_report = report(study)
    return study_report.tasks.get(task, study_report)


@st.cache_resource(show_spinner=False, max_entries=32)
def _answer(location: str, study: str, task: str, at: tuple[Any, ...]) -> Answer:
    return answer_of(report_on(study, task))


def answer(study: str, task: str = "") -> Answer:
    """The answer of a study, of a suite that on one of its tasks.

    Raises:
        NotFoundError: There is no such study.
    """
    return _answer(location(), study, task, stamp(study))


def choose_task(study: str) -> str:
    """The control for the task of a suite, stored in the address; empty, and no control, for any other study."""
    tasks = list(record(study).space.get("tasks") or {})
    if not tasks:
        return ""
    return str(st.segmented_control("Task", tasks, default=tasks[0], key="task", bind="query-params", required=True))


def any_ended(study: str) -> bool:
    """Whether there is a result; if there is none, the page says so."""
    if any(run.finished or run.diverged for run in runs(study).values()):
        return True
    st.info("No trial has ended yet. This page fills with the first result.", icon=":material/hourglass_empty:")
    return False


def missing(study: str, what: str, remedy: str, *, crossed: bool = False) -> None:
    """Show why a page is empty for a study, and which design in a space file would fill it.

    Args:
        what: The reason, as the end of a sentence about its design.
        remedy: The design that would fill the page.
        crossed: Whether any design that crosses its switches would do, so that only results may be missing.
    """
    if crossed and _crosses(study):
        states = [state for run in runs(study).values() for state in run.states.values()]
        said = ", ".join(counted((state.value, states.count(state)) for state in TrialState))
        st.info(
            f"The design of this study crosses its switches, but the trials that have a final value do not: {said}. "
            "Without pruning, or with more trials, they would.",
            icon=":material/info:",
        )
        return
    kind = str(record(study).space.get("design", {}).get("kind", "its own"))
    st.info(f"The design of this study, {escape(kind)}, {what}. {remedy}", icon=":material/info:")


def _crosses(study: str) -> bool:
    """Whether the variants of a study, with or without a result, cross at least two switches."""
    own = main_part(compared(study)[0])
    switches = factors_of(own).switches
    return len(switches) > 1 and crosses(own.variants, switches, ())


@st.cache_resource(show_spinner=False, max_entries=8)
def _effects(location: str, study: str, at: tuple[Any, ...]) -> StudyEffects | None:
    return effects_of(*compared(study), report(study).evidence.tuning)


def effects(study: str) -> StudyEffects | None:
    """The result of `ablate.analysis.effects.read_effects`, cached."""
    return _effects(location(), study, stamp(study))


@st.cache_resource(show_spinner=False, max_entries=8)
def _importances(location: str, study: str, at: tuple[Any, ...]) -> StudyImportances | None:
    return importances_of(*compared(study))


def importances(study: str) -> StudyImportances | None:
    """The result of `ablate.analysis.effects.read_importances`, cached; takes seconds."""
    return _importances(location(), study, stamp(study))


@st.cache_resource(show_spinner=False, max_entries=8)
def _fresh(location: str, study: str, at: tuple[Any, ...]) -> Mapping[str, VariantRuns]:
    return read_confirming(store(), record(study))


def fresh(study: str) -> Mapping[str, VariantRuns]:
    """Variant name to its trials with fresh seeds, which confirm what results selected; empty if none are planned."""
    return _fresh(location(), study, stamp(study))


def which_seeds(study: str) -> str:
    """The result of `ablate.analysis.search.which_seeds`."""
    return search.which_seeds(report(study), answer(study), runs(study), fresh(study))


@st.cache_resource(show_spinner=False, max_entries=8)
def _path(location: str, study: str, at: tuple[Any, ...]) -> RemovalPath | None:
    return path_of(*compared(study), fresh(study), report(study).evidence.tuning)


def path(study: str) -> RemovalPath | None:
    """The result of `ablate.analysis.path.read_path`, cached."""
    return _path(location(), study, stamp(study))


@st.cache_resource(show_spinner=False, max_entries=32)
def _front(location: str, study: str, quantities: tuple[str, ...], at: tuple[Any, ...]) -> Front | None:
    return front_of(*compared(study), quantities, report(study).evidence.tuning)


def front(study: str, quantities: tuple[str, ...] = ()) -> Front | None:
    """The result of `ablate.analysis.pareto.read_front`, cached."""
    return _front(location(), study, quantities, stamp(study))


@st.cache_resource(show_spinner=False, max_entries=8)
def _slices(location: str, study: str, at: tuple[Any, ...]) -> tuple[Slice, ...]:
    return slices_of(*compared(study))


def slices(study: str) -> tuple[Slice, ...]:
    """The result of `ablate.analysis.slices.read_slices`, cached."""
    return _slices(location(), study, stamp(study))


def plans_ahead(study: str) -> bool:
    """Whether the design of a study names all its points before any result."""
    return record(study).traits.plans_points


STATE, VARIANT, SEED, ROLE, KEY = "state", "variant", "seed", "role", "key"
NAME, VERSUS = "name", "vs baseline"
"""Columns: the name of the variant, which the column `VARIANT` has in words, and the objective minus that of the
baseline with the same seed."""
MEMBERSHIP = "training.population"
"""The path of the object that the name of a member of a population stands for."""
NONE = "(none)"
"""A setting of a switch that a variant does not have."""


@dataclass(frozen=True, slots=True)
class Filter:
    """The filter and the order that the controls set.

    Attributes:
        states: The states that are shown; if empty, all.
        settings: `SWITCH=SETTING`; for each switch named, a trial must have one of its settings named here.
        metric: The column with bounds; if empty, none.
        low: Its lower bound, or None.
        high: Its upper bound, or None.
        by: The column that the rows are sorted by; if empty, the order of the design.
        descending: Whether the largest value comes first.
    """

    states: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    metric: str = ""
    low: float | None = None
    high: float | None = None
    by: str = ""
    descending: bool = False


def switches(study_record: StudyRecord) -> dict[str, list[str]]:
    """Each switch or path that variants set, to its settings in the order of the design."""
    found: dict[str, dict[str, None]] = {}
    for variant in study_record.variants:
        for switch, setting in variant.settings.items():
            if switch != MEMBERSHIP:
                found.setdefault(switch, {})[setting] = None
    return {switch: list(settings) for switch, settings in found.items()}


@st.cache_resource(show_spinner=False, max_entries=4)
def _trials(location: str, study: str, at: tuple[object, ...]) -> pd.DataFrame:
    study_record = record(study)
    planned = (*study_record.planned, *study_record.scout_trials, *study_record.confirm_trials)
    return trial_table(study_record, planned, store().trials([trial.key for trial in planned]))


def trials(study: str) -> pd.DataFrame:
    """A row for each planned trial of a study; cached, so do not change it.

    Raises:
        NotFoundError: There is no such study.
    """
    return _trials(location(), study, stamp(study))


def own_baselines(study_record: StudyRecord) -> dict[str, str]:
    """Variant name to that of the baseline that it is compared with, of a suite that on the same task."""
    found = baselines_of(study_record).items()
    return {name: at_task(split_task(baseline)[0], split_task(name)[1]) for name, baseline in found}


def trial_table(
    study_record: StudyRecord, planned: tuple[PlannedTrial, ...], known: dict[str, TrialRecord]
) -> pd.DataFrame:
    """The trials with their settings, metrics and cost; unknown values are missing."""
    named = {variant.name: variant for variant in (*study_record.variants, *study_record.scout_variants)}
    titles, baselines = variant_titles(study_record), own_baselines(study_record)
    metrics = list(dict.fromkeys(metric for trial in known.values() for metric in trial.metrics))
    objective, named_switches, rows = study_record.objective["metric"], list(switches(study_record)), []
    metrics.sort(key=lambda metric: metric != objective)
    values = {
        (one.role, one.variant, one.seed): known[one.key].metrics.get(objective) for one in planned if one.key in known
    }

    def versus(one: PlannedTrial) -> float | None:
        baseline = baselines.get(one.variant, one.variant)
        own, other = (values.get((one.role, name, one.seed)) for name in (one.variant, baseline))
        return None if own is None or other is None or baseline == one.variant else own - other

    for one in planned:
        variant, trial = named[one.variant], known.get(one.key)
        row: dict[str, object] = {
            VARIANT: titles[one.variant],
            SEED: one.seed,
            **{metric: trial.metrics.get(metric) if trial else None for metric in metrics[:1]},
            VERSUS: versus(one),
            **{metric: trial.metrics.get(metric) if trial else None for metric in metrics[1:]},
            STATE: (trial.state if trial else TrialState.WAITING).value,
            ROLE: one.role.value,
            **{f"{switch}=": variant.settings.get(switch) for switch in named_switches},
            "parameters": variant.parameters,
            "steps": trial.steps if trial else None,
            "tokens": trial.tokens or None if trial else None,
            "FLOP": trial.flops or None if trial else None,
            "seconds": trial.seconds or None if trial else None,
            "attempts": trial.attempts if trial else None,
            "ended": trial.finished_at if trial else None,
            NAME: one.variant,
            KEY: one.key,
        }
        rows.append(row)
    table = pd.DataFrame(rows)
    for column in (*metrics, VERSUS, "steps", "tokens", "FLOP", "seconds", "attempts"):
        if column in table:
            table[column] = pd.to_numeric(table[column])
    return table


def numeric(table: pd.DataFrame) -> list[str]:
    """The columns that hold numbers."""
    return [str(name) for name, kind in table.dtypes.items() if pd.api.types.is_numeric_dtype(kind)]


def filtered(table: pd.DataFrame, wish: Filter) -> pd.DataFrame:
    """The filtered and sorted rows; rows without the number that they are sorted by come last."""
    kept = pd.Series(True, index=table.index)
    if wish.states:
        kept &= table[STATE].isin(wish.states)
    asked: dict[str, list[str]] = {}
    for setting in wish.settings:
        switch, _, name = setting.partition("=")
        asked.setdefault(switch, []).append(name)
    for switch, names in asked.items():
        if f"{switch}=" in table:
            kept &= table[f"{switch}="].fillna(NONE).isin(names)
    if wish.metric in table:
        if wish.low is not None:
            kept &= table[wish.metric] >= wish.low
        if wish.high is not None:
            kept &= table[wish.metric] <= wish.high
    rows = table[kept]
    if wish.by in table:
        rows = rows.sort_values(wish.by, ascending=not wish.descending, kind="stable", na_position="last")
    return rows


MOST_TAGS = 20


def edit_mark(kind: Marked, name: str) -> None:
    """A form that shows the mark and writes what is entered."""
    mark = store().marks.of(kind, name)
    key = f"{kind}-{name}"
    stated = [word for word in ("★" * mark.starred, ", ".join(mark.tags), "note" * bool(mark.note)) if word]
    with (
        st.expander(
            f"Star, tags, note{': ' if stated else ''}{escape(' · '.join(stated), 100)}", icon=":material/star:"
        ),
        st.form(f"mark-{key}", border=False),
    ):
        starred = st.toggle("Star", mark.starred, key=f"star-{key}")
        tags = st.text_input("Tags, separated by commas", ", ".join(mark.tags), key=f"tags-{key}", max_chars=400)
        note = st.text_area("Note", mark.note, key=f"note-{key}", max_chars=20_000)
        if st.form_submit_button("Save", type="primary", disabled=read_only()) and not read_only():
            _save(kind, name, Mark(starred, split_tags(tags or ""), note or ""))
    if mark.note:
        st.text(mark.note)


def split_tags(text: str) -> tuple[str, ...]:
    """The tags in a text that separates them by commas."""
    tags = dict.fromkeys(" ".join(tag.split()) for tag in text.split(","))
    return tuple(tag for tag in tags if tag)[:MOST_TAGS]


def _save(kind: Marked, name: str, mark: Mark) -> None:
    try:
        store().marks.put(kind, name, mark)
    except StoreError as error:
        st.error(prose(str(error)))
    else:
        st.rerun()


PATIENCE = 180
"""Seconds that a sample may take; each sample loads the weights."""


def can_write(record: StudyRecord, variant: VariantRecord) -> bool:
    """Whether the trials of a variant are decoders with saved weights."""
    kept = [spec.get("training", {}).get("save_weights") for spec in (record.space, variant.spec)]
    return any(kept) and variant.spec.get("model", {}).get("family") == "decoder"


def sample_box(keys: dict[str, str]) -> None:
    """A form for a text and its continuation by each trial; `keys` maps labels to trial keys."""
    with st.form("sample", border=True):
        prompt = st.text_input("Text to continue", key="prompt", max_chars=2000)
        seed = st.number_input("Seed of the draws", 0, 2**31, key="draws", width=180)
        asked = st.form_submit_button("Write", icon=":material/edit:", disabled=read_only())
    if not asked or read_only():
        return
    for (label, key), column in zip(keys.items(), st.columns(len(keys)), strict=True):
        with column, st.spinner("Loading the weights"):
            st.text(label)
            code(_write(key, str(prompt or ""), int(seed)))


def _write(key: str, prompt: str, seed: int) -> str:
    chosen = options()
    command = python_command("-m", "ablate", "generate", "--json", f"--prompt={prompt}")
    command += [f"--seed={seed}", "--tokens=200", f"--store={location()}"]
    command += [*(f"--plugin={plugin}" for plugin in chosen["plugins"]), "--", key]  # a store may hold any key
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return f"There was no answer within {PATIENCE} s."
    if done.returncode:
        return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "The sample could not be generated."
    return prompt + str(json.loads(done.stdout)["text"])

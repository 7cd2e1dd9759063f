"""Suites: a study of several tasks as a study of each task, and as one whose objective is the mean of their scores.

The score of a task is (metric - trivial) / (perfect - trivial) (`ablate.spec.suite.AggregateSpec`). The mean over tasks
of one variant and one seed counts as the result of one trial, so it is paired by seed, judged and corrected by Holm's
procedure like every other objective. On the tasks themselves Holm's procedure runs over all variants and tasks.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from ablate.analysis.numbers import decimals_for, few, listed, replaced
from ablate.analysis.report import StudyReport
from ablate.analysis.runs import FinalResults, StudyReader
from ablate.analysis.trivial import Scale, trivial_baselines
from ablate.analysis.warnings import StudyWarning
from ablate.errors import NotFoundError
from ablate.spec.suite import SCORE, TASK, AggregateSpec, split_task
from ablate.stats import Interval, hold_together
from ablate.store.records import (
    Declaration,
    DeclaredObjective,
    PlannedTrial,
    StudyRecord,
    TrialRecord,
    TrialState,
    VariantRecord,
)

NO_LEARNING = "mean of trivial baselines"
"""The trivial baseline of the mean score, which is 0 by its definition."""


def tasks_of(record: StudyRecord) -> dict[str, StudyRecord]:
    """The tasks of a suite, each as a study of its own; empty if the study has a single task."""
    return {task: _on_task(record, task) for task in record.space.get("tasks") or {}}


def scales_of(record: StudyRecord) -> dict[str, Scale]:
    """Task of a suite to its scale."""
    aggregate = AggregateSpec.model_validate(record.space["aggregate"])
    metric, direction = record.objective["metric"], record.objective["direction"]
    perfect, scales = aggregate.perfect_value(metric), {}
    assert perfect is not None, "a suite declares it"
    for task, study in tasks_of(record).items():
        rules = trivial_baselines(study.trivial, metric, direction)
        scales[task] = Scale(aggregate.trivial.get(task, rules[0].value if rules else 0.0), perfect)
    return scales


def reader_of(store: StudyReader, name: str) -> StudyReader:
    """The store, in which a suite is one study with the mean score as its objective.

    Raises:
        NotFoundError: The store holds no such study.
    """
    record = store.study(name)
    return SuiteReader(store, record) if record.space.get("tasks") else store


class SuiteReader(FinalResults):
    """A suite as one study: its trials are all trials of a variant and a seed, its metric their mean score."""

    def __init__(self, store: StudyReader, record: StudyRecord) -> None:
        tasks, self._store = tasks_of(record), store
        members: dict[tuple[str, int], dict[str, PlannedTrial]] = {}
        for task, study in tasks.items():
            for planned_trial in study.planned:
                members.setdefault((planned_trial.variant, planned_trial.seed), {})[task] = planned_trial
        whole = {place: of for place, of in members.items() if len(of) == len(tasks)}
        planned = {place: _together(of) for place, of in whole.items()}
        known = store.trials([trial.key for of in whole.values() for trial in of.values()])
        scales, metric = scales_of(record), record.objective["metric"]
        self._record = _whole(record, tasks, tuple(planned.values()))
        self._trials = {
            planned[place].key: trial
            for place, of in whole.items()
            if (trial := _mean_trial(planned[place], {t: known.get(one.key) for t, one in of.items()}, scales, metric))
        }

    def study(self, name: str) -> StudyRecord:
        """The suite."""
        return self._record

    def codes(self, identities: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """As those of the store."""
        return self._store.codes(identities)


def _on_task(record: StudyRecord, task: str) -> StudyRecord:
    """The part of a suite on one task."""

    def bare(name: str) -> str | None:
        variant, of = split_task(name)
        return variant if of == task else None

    def declared(before: Declaration) -> Declaration:
        space = _space_of(before.space, task) if before.space.get("tasks") else before.space
        variants = _with_bare_names(before.variants, bare)
        return replace(before, space=space, claims=_claims_on(before.claims, task), variants=variants)

    return replace(
        record,
        space=_space_of(record.space, task),
        baseline=split_task(record.baseline)[0],
        variants=tuple(_plain(variant) for variant in record.variants if bare(variant.name) is not None),
        planned=tuple(
            replace(trial, variant=name) for trial in record.planned if (name := bare(trial.variant)) is not None
        ),
        trivial=_with_bare_names(record.trivial, bare),
        declared_before=tuple(map(declared, record.declared_before)),
        shared=tuple(
            replace(sharing, variants=names)
            for sharing in record.shared
            if (names := tuple(name for of in sharing.variants if (name := bare(of)) is not None))
        ),
    )


def _whole(record: StudyRecord, tasks: Mapping[str, StudyRecord], planned: tuple[PlannedTrial, ...]) -> StudyRecord:
    """A suite as one study."""
    of_variant: dict[str, list[VariantRecord]] = {}
    for study in tasks.values():
        for variant in study.variants:
            of_variant.setdefault(variant.name, []).append(variant)

    def declared(before: Declaration) -> Declaration:
        if not before.space.get("tasks"):
            return before
        names = {split_task(name)[0] for name in before.variants}
        finished = {
            name: min(n for other, n in before.variants.items() if split_task(other)[0] == name) for name in names
        }
        claims = _claims_on(before.claims, "")
        return replace(before, objective=_objective(before.space), claims=claims, variants=finished)

    return replace(
        record,
        space={**record.space, "claims": _claims_on(record.space.get("claims", []), "")},
        objective=_objective(record.space),
        baseline=split_task(record.baseline)[0],
        variants=tuple(
            replace(
                of[0],
                hash=hashlib.sha256("".join(variant.hash for variant in of).encode()).hexdigest(),
                parameters=_mean_size([variant.parameters for variant in of]),
            )
            for of in of_variant.values()
            if len(of) == len(tasks)
        ),
        planned=planned,
        trivial={NO_LEARNING: {SCORE: 0.0}},
        declared_before=tuple(map(declared, record.declared_before)),
        shared=(),
    )


def _mean_size(parameters: Sequence[int | None]) -> int | None:
    known = [number for number in parameters if number is not None]
    return round(fmean(known)) if len(known) == len(parameters) else None


def _space_of(space: Mapping[str, Any], task: str) -> dict[str, Any]:
    """The space of one task of a suite, as far as reports read it."""
    tuned = {
        path: {
            split_task(name)[0]: value
            for name, value in sorted(values.items())  # own ones follow, and count
            if split_task(name)[1] in ("", task)
        }
        for path, values in (space.get("tuned") or {}).items()
    }
    kept = {name: value for name, value in space.items() if name not in ("tasks", "aggregate", "tuned")}
    own = (space.get("tasks") or {}).get(task, {})
    more: dict[str, Any] = {"tuned": tuned} if tuned else {}
    return {**kept, **more, TASK: own.get(TASK, {}), "claims": _claims_on(space.get("claims", []), task)}


def _claims_on(claims: Sequence[Any], task: str) -> list[Any]:
    return [claim for claim in claims if claim.get(TASK, "") == task]


def _with_bare_names(values: Mapping[str, Any], bare: Callable[[str], str | None]) -> dict[str, Any]:
    return {name: value for whole, value in values.items() if (name := bare(whole)) is not None}


def _plain(variant: VariantRecord) -> VariantRecord:
    """A variant without its task."""
    settings = {switch: setting for switch, setting in variant.settings.items() if switch != TASK}
    return replace(variant, name=split_task(variant.name)[0], settings=settings)


def _objective(space: Mapping[str, Any]) -> DeclaredObjective:
    return DeclaredObjective(metric=SCORE, direction="maximize", margin=float(space["aggregate"]["margin"]))


def _together(members: Mapping[str, PlannedTrial]) -> PlannedTrial:
    """The trials of one variant and one seed as one planned trial."""
    first = next(iter(members.values()))
    key = hashlib.sha256("".join(member.key for member in members.values()).encode()).hexdigest()
    return PlannedTrial(key, first.variant, first.seed, first.role)


def _mean_trial(
    planned: PlannedTrial, trials: Mapping[str, TrialRecord | None], scales: Mapping[str, Scale], metric: str
) -> TrialRecord | None:
    """The trials of one variant and one seed as one trial; None before any has begun.

    It has diverged or failed where one of them has, as a mean over fewer tasks is not comparable.
    """
    known = {task: trial for task, trial in trials.items() if trial is not None}
    if not known:
        return None
    first, state, reason, stopped_at = next(iter(known.values())), TrialState.FINISHED, "", None
    ends = (TrialState.FAILED, TrialState.DIVERGED, TrialState.PRUNED)
    lost = [(end, task, trial) for end in ends for task, trial in known.items() if _state(trial, metric) is end]
    if lost:
        state, task, trial = lost[0]
        reason, stopped_at = f"on {task}: {trial.reason}", trial.stopped_at
    elif len(known) < len(trials) or any(trial.state.is_open for trial in known.values()):
        state = TrialState.RUNNING
    done = state is TrialState.FINISHED
    return replace(
        first,
        key=planned.key,
        state=state,
        metrics={SCORE: math.fsum(scales[t].score(one.metrics[metric]) for t, one in known.items()) / len(known)}
        if done
        else {},
        reason=reason,
        stopped_at=stopped_at,
        seconds=math.fsum(trial.seconds for trial in known.values()),
        tokens=sum(trial.tokens for trial in known.values()),
        flops=math.fsum(trial.flops for trial in known.values()),
        parts={},
        code="",
    )


def _state(trial: TrialRecord, metric: str) -> TrialState:
    if trial.state is TrialState.FINISHED and not math.isfinite(trial.metrics.get(metric, math.nan)):
        return TrialState.DIVERGED
    return trial.state


@dataclass(frozen=True, slots=True)
class SuiteCell:
    """A variant on a task.

    Attributes:
        mean: The objective's metric over the finished seeds; None without any, or if some diverged.
        low: Lower bound of its 95 % interval.
        high: Upper bound of it.
        score: The mean as a score: 0 trivial, 1 perfect.
        score_low: Lower bound of its 95 % interval.
        score_high: Upper bound of it.
        difference: From the baseline on this task, in the unit of the metric, paired by seed; None of the baseline.
        difference_low: Lower bound of its 95 % interval.
        difference_high: Upper bound of it.
        verdict: On that difference, or why there is none; empty of the baseline.
        sentence: The verdict with its reason.
        jointly: Whether it holds together with those of all variants on all tasks (Holm's procedure).
        alike: Whether it equals the baseline at every seed, so that nothing bounds the difference.
        learnt: Whether the variant beats the trivial baseline that counts, with 95 % confidence.
        finished: How many seeds have finished.
        planned: How many are planned.
    """

    mean: float | None
    low: float | None
    high: float | None
    score: float | None
    score_low: float | None
    score_high: float | None
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    verdict: str
    sentence: str
    jointly: bool
    alike: bool
    learnt: bool
    finished: int
    planned: int


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """A variant on all tasks.

    Attributes:
        variant: Its name.
        words: What it changes, in words.
        score: Mean over the tasks of its scores, over the finished seeds; None without any, or if some diverged.
        low: Lower bound of its 95 % interval.
        high: Upper bound of it.
        cells: Task to its result there.
    """

    variant: str
    words: str
    score: float | None
    low: float | None
    high: float | None
    cells: dict[str, SuiteCell]


@dataclass(frozen=True, slots=True)
class SuiteTask:
    """A task of a suite.

    Attributes:
        kind: Of the task.
        rule: The trivial baseline of score 0; empty where the space declares its value.
        trivial: Its metric.
        perfect: The metric of score 1.
        learnt: Whether any variant has learnt it, so that differences between them say something.
    """

    kind: str
    rule: str
    trivial: float
    perfect: float
    learnt: bool


@dataclass(frozen=True, slots=True)
class Suite:
    """Every variant of a suite on every task.

    Attributes:
        metric: The objective's metric, the same on all tasks.
        margin: How much worse matters on a task, in its unit.
        decimals: With how many decimals the metric is written.
        tasks: By name, in the order of the space.
        rows: The baseline first, then the others from the best mean score to the worst.
    """

    metric: str
    margin: float
    decimals: int
    tasks: dict[str, SuiteTask]
    rows: tuple[SuiteRow, ...]


def suite_of(report: StudyReport, words: Mapping[str, str]) -> Suite | None:
    """The matrix of variants and tasks of a suite; None for a study of one task.

    Args:
        words: Variant to what it changes.
    """
    if not report.tasks:
        return None
    verdicts = {
        f"{row.name} {task}": row.verdict
        for task, of in report.tasks.items()
        for row in of.variants
        if row.verdict is not None
    }
    together = hold_together(verdicts)
    first = next(iter(report.tasks.values()))
    tasks = {}
    for task, of in report.tasks.items():
        scale, best = report.scales[task], of.evidence.trivial
        rule = best.name if best is not None and best.value == scale.trivial else ""
        kind = str(of.record.space[TASK].get("kind", ""))
        tasks[task] = SuiteTask(kind, rule, scale.trivial, scale.perfect, of.answer.learnt)
    rows, old = [], replaced(words.values())
    said = dict(words) | ({report.record.baseline: f"{old} (baseline)"} if old else {})
    for row in report.variants:
        score = _ends(row.mean(SCORE))
        cells = {
            task: _cell(of, row.name, report.scales[task], f"{row.name} {task}" in together)
            for task, of in report.tasks.items()
        }
        rows.append(SuiteRow(row.name, said.get(row.name, row.name), *score, cells))
    rows.sort(key=lambda row: (row.variant != report.record.baseline, math.inf if row.score is None else -row.score))
    return Suite(first.metric, first.margin, decimals_for(first.margin, ()), tasks, tuple(rows))


def on_task(report: StudyReport, task: str | None) -> StudyReport:
    """The report of one task of a suite; without a name the report itself.

    Raises:
        NotFoundError: The study has no such task.
    """
    if task is None:
        return report
    if task not in report.tasks:
        raise NotFoundError(
            f"study {report.record.name!r} has no task {task!r}",
            where="--task",
            expected=f"one of {listed(report.tasks)}" if report.tasks else "a study of several tasks",
            got=repr(task),
        )
    return report.tasks[task]


def suite_warnings(tasks: Mapping[str, StudyReport]) -> Iterator[StudyWarning]:
    """A warning on the tasks that no variant has learnt: their part of the mean score tells variants apart by noise."""
    if unlearnt := [task for task, report in tasks.items() if not report.answer.learnt]:
        text = f"no model has learnt {listed(unlearnt)}"
        full = (
            f"No model beats the trivial baseline of {listed(unlearnt)} with 95 % confidence, so that "
            f"{'this task does' if len(unlearnt) == 1 else 'these tasks do'} not tell the variants apart."
        )
        yield StudyWarning("unlearnt", "weak", text, full)


def suite_sentences(tasks: Mapping[str, StudyReport]) -> Iterator[str]:
    """A sentence for each task: the variants by their verdict."""
    for task, report in tasks.items():
        words: dict[str, list[str]] = {}
        for row in report.variants:
            if word := row.verdict_word:
                words.setdefault(word, []).append(row.name)
        said = [f"{few(names)} {word}" for word, names in words.items()]
        yield f"On {task} ({report.metric}, margin {report.margin:g}): {'; '.join(said) or 'nothing is compared'}."


def _ends(mean: Interval | None) -> tuple[float | None, float | None, float | None]:
    """A mean with the bounds of its interval."""
    return (None, None, None) if mean is None else (mean.mean, mean.low, mean.high)


def _cell(report: StudyReport, name: str, scale: Scale, jointly: bool) -> SuiteCell:
    row = next(row for row in report.variants if row.name == name)
    mean, low, high = _ends(row.mean(report.metric))
    ends = sorted(scale.score(end) for end in (low, high) if end is not None)
    paired = row.shown_difference if name != report.record.baseline else None
    return SuiteCell(
        mean=mean,
        low=low,
        high=high,
        score=None if mean is None else scale.score(mean),
        score_low=ends[0] if ends else None,
        score_high=ends[1] if ends else None,
        difference=paired.difference if paired else None,
        difference_low=paired.low if paired else None,
        difference_high=paired.high if paired else None,
        verdict="" if name == report.record.baseline else row.verdict_word or row.verdict_cell,
        sentence="" if name == report.record.baseline else row.verdict_sentence or "",
        jointly=jointly,
        alike=paired is not None and paired.is_zero,
        learnt=bool(row.finished) and name not in report.evidence.unlearnt,
        finished=len(row.finished),
        planned=len(row.planned),
    )

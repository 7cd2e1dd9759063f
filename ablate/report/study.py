"""A study as a person wants to read it: a row for each variant, compared with the baseline seed by seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ablate.report.answer import answer_sentences
from ablate.stats import Direction, Interval, PairedDifference, Verdict, judge, mean_interval, paired_difference
from ablate.store.records import CurvePoint, StudyRecord, TrialRecord, TrialState, VariantRecord

Curve = Sequence[CurvePoint]


class StudyReader(Protocol):
    """What a report asks of a store."""

    def study(self, name: str) -> StudyRecord:
        """The study of this name.

        Raises:
            NotFoundError: There is none.
        """

    def trials(self, keys: Sequence[str]) -> dict[str, TrialRecord]:
        """The trials that exist, by key."""

    def curves(self, keys: Sequence[str]) -> dict[str, tuple[CurvePoint, ...]]:
        """The curves of the trials that exist, by key, in the order of their steps."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """A trial whose loss stopped being finite: its seed, the step (None if unknown) and what was recorded about it."""

    seed: int
    step: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class StepsToBaseline:
    """Steps until a variant's validation loss reached the final one of the baseline, seed by seed.

    Attributes:
        mean: Mean over the seeds; None unless every seed reached it, since leaving out the slow ones would flatter.
        reached: Seeds that reached it.
        of: Seeds that were compared: the baseline finished, and the variant finished or diverged. A trial that
            diverged counts as not having reached it.
    """

    mean: float | None
    reached: int
    of: int


@dataclass(frozen=True, slots=True)
class VariantRow:
    """One variant of a study with all that its trials say.

    Attributes:
        name: Unique in the study.
        hash: Content hash of the full spec (hex).
        settings: Switch name to setting name.
        parameters: Trainable parameters.
        parameter_change: (parameters - those of the baseline) / those of the baseline; None if the baseline has none.
        planned: Seeds that the study planned.
        finished: Seeds whose trial finished with a finite objective.
        states: Planned seed to the state of its trial.
        metrics: Final metric to its mean over the finished seeds, with a 95 % interval.
        diverged: The trials that diverged.
        difference: Objective of the variant minus that of the baseline, paired by seed; None for the baseline.
        verdict: None for the baseline.
        steps_to_baseline: How soon the validation loss got where the baseline ended.
        relative_speed: Tokens a second over those of the baseline, mean over the paired seeds; None without a pair.
    """

    name: str
    hash: str
    settings: dict[str, str]
    parameters: int
    parameter_change: float | None
    planned: tuple[int, ...]
    finished: tuple[int, ...]
    states: dict[int, TrialState]
    metrics: dict[str, Interval]
    diverged: tuple[Divergence, ...]
    difference: PairedDifference | None
    verdict: Verdict | None
    steps_to_baseline: StepsToBaseline
    relative_speed: float | None


@dataclass(frozen=True, slots=True)
class StudyReport:
    """A study, its variants in the order of the design, and its answer.

    Attributes:
        record: The study as the store holds it.
        metric: Name of the objective's metric.
        direction: Whether a smaller or a larger metric is better.
        margin: How much worse matters, in the unit of the metric.
        variants: A row for each variant.
        progress: How many planned trials are in each state.
        answer: The answer to the study's question, as sentences.
    """

    record: StudyRecord
    metric: str
    direction: Direction
    margin: float
    variants: tuple[VariantRow, ...]
    progress: dict[TrialState, int]
    answer: tuple[str, ...]

    @property
    def baseline(self) -> VariantRow:
        """The row that all others are compared with."""
        return next(row for row in self.variants if row.name == self.record.baseline)

    @property
    def planned(self) -> int:
        """How many trials the study planned."""
        return len(self.record.planned)


@dataclass(frozen=True, slots=True)
class _Runs:
    """The trials of one variant by seed, and what is read off them."""

    states: dict[int, TrialState]
    finished: dict[int, TrialRecord]
    diverged: dict[int, TrialRecord]
    curves: dict[int, Curve]

    def values(self, metric: str) -> dict[int, float]:
        return {seed: trial.metrics[metric] for seed, trial in self.finished.items() if metric in trial.metrics}


def read_study(store: StudyReader, name: str) -> StudyReport:
    """Read a study out of the store and compare its variants with its baseline.

    Raises:
        NotFoundError: The store holds no such study.
    """
    record = store.study(name)
    metric, direction = record.objective["metric"], record.objective["direction"]
    margin = float(record.objective["margin"])
    runs = _runs(store, record, metric)
    baseline = next(variant for variant in record.variants if variant.name == record.baseline)
    rows = tuple(
        _row(variant, baseline, runs[variant.name], runs[baseline.name], metric, direction, margin)
        for variant in record.variants
    )
    states = [state for found in runs.values() for state in found.states.values()]
    progress = {state: states.count(state) for state in TrialState}
    answer = answer_sentences(
        {row.name: row.verdict for row in rows if row.verdict is not None},
        {row.name: row.difference.n for row in rows if row.difference is not None},
        metric,
        margin,
        complete=not any(progress[state] for state in (TrialState.WAITING, TrialState.RUNNING, TrialState.FAILED)),
    )
    return StudyReport(record, metric, direction, margin, rows, progress, answer)


def _runs(store: StudyReader, record: StudyRecord, metric: str) -> dict[str, _Runs]:
    keys = [planned.key for planned in record.planned]
    trials, curves = store.trials(keys), store.curves(keys)
    runs = {variant.name: _Runs({}, {}, {}, {}) for variant in record.variants}
    for planned in record.planned:
        run, trial = runs[planned.variant], trials.get(planned.key)
        state = TrialState.WAITING if trial is None else trial.state
        # A trial may have ended in time with a loss that is no number: that is no result either.
        if trial is not None and state is TrialState.FINISHED and not math.isfinite(trial.metrics.get(metric, 0.0)):
            state = TrialState.DIVERGED
        run.states[planned.seed] = state
        if trial is not None and state is TrialState.FINISHED:
            run.finished[planned.seed] = trial
        if trial is not None and state is TrialState.DIVERGED:
            run.diverged[planned.seed] = trial
        run.curves[planned.seed] = curves.get(planned.key, ())
    return runs


def _row(
    variant: VariantRecord,
    baseline: VariantRecord,
    runs: _Runs,
    baseline_runs: _Runs,
    metric: str,
    direction: Direction,
    margin: float,
) -> VariantRow:
    difference, verdict = None, None
    if variant.name != baseline.name:
        values, baseline_values = runs.values(metric), baseline_runs.values(metric)
        difference = paired_difference(values, baseline_values)
        verdict = judge(
            values,
            baseline_values,
            margin=margin,
            direction=direction,
            diverged={seed: trial.stopped_at for seed, trial in runs.diverged.items()},
            baseline_diverged={seed: trial.stopped_at for seed, trial in baseline_runs.diverged.items()},
        )
    change = variant.parameters - baseline.parameters
    return VariantRow(
        name=variant.name,
        hash=variant.hash,
        settings=variant.settings,
        parameters=variant.parameters,
        parameter_change=change / baseline.parameters if baseline.parameters else None,
        planned=tuple(runs.states),
        finished=tuple(sorted(runs.finished)),
        states=runs.states,
        metrics=_metrics(runs),
        diverged=tuple(
            Divergence(seed, runs.diverged[seed].stopped_at, runs.diverged[seed].reason)
            for seed in sorted(runs.diverged)
        ),
        difference=difference,
        verdict=verdict,
        steps_to_baseline=_steps_to_baseline(runs, baseline_runs),
        relative_speed=_relative_speed(runs.finished, baseline_runs.finished),
    )


def _metrics(runs: _Runs) -> dict[str, Interval]:
    names = sorted({name for trial in runs.finished.values() for name in trial.metrics})
    return {name: _interval(list(runs.values(name).values())) for name in names}


def _interval(values: list[float]) -> Interval:
    if all(math.isfinite(value) for value in values):
        return mean_interval(values)
    return Interval(None, None, None, len(values))  # a side metric may overflow; the objective's is never here then


def _steps_to_baseline(runs: _Runs, baseline_runs: _Runs) -> StepsToBaseline:
    reached = []
    compared = 0
    for seed in baseline_runs.finished:
        # The target is read off the curve, not the final metrics, so that like is compared with like.
        evaluated = _evaluated(baseline_runs.curves[seed])
        if not evaluated or seed not in runs.finished.keys() | runs.diverged.keys():
            continue
        compared += 1
        step = first_step_at(runs.curves[seed], evaluated[-1][1])
        if step is not None and seed in runs.finished:
            reached.append(step)
    mean = math.fsum(reached) / compared if reached and len(reached) == compared else None
    return StepsToBaseline(mean, len(reached), compared)


def first_step_at(curve: Curve, target: float) -> float | None:
    """The first step at which the validation loss is at or below `target`, on straight lines between its points.

    Returns:
        A step, in general not whole; None if the curve stays above the target.
    """
    before: tuple[int, float] | None = None
    for step, loss in _evaluated(curve):
        if loss <= target:
            if before is None:
                return float(step)
            start, height = before
            return start + (step - start) * (height - target) / (height - loss)
        before = step, loss
    return None


def _evaluated(curve: Curve) -> list[tuple[int, float]]:
    """Step and validation loss of the points that have a finite one."""
    return [
        (point.step, point.val_loss) for point in curve if point.val_loss is not None and math.isfinite(point.val_loss)
    ]


def _relative_speed(finished: Mapping[int, TrialRecord], baseline: Mapping[int, TrialRecord]) -> float | None:
    pairs = [(finished[seed], baseline[seed]) for seed in finished.keys() & baseline.keys()]
    ratios = [
        (trial.tokens / trial.seconds) / (base.tokens / base.seconds)
        for trial, base in pairs
        if trial.seconds > 0 and base.seconds > 0 and base.tokens > 0
    ]
    return math.fsum(ratios) / len(ratios) if ratios else None

"""A study as a person wants to read it: a row for each variant, compared with the baseline seed by seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ablate.report.answer import answer_sentences, best_sentence
from ablate.report.declared import declared_otherwise
from ablate.report.failures import Failure, failures_of
from ablate.report.fairness import Matching, Tuning, read_matching, read_tuning, scouts_of
from ablate.report.reaching import Goal, StepsToBaseline, read_goals, to_baseline
from ablate.report.runs import StudyReader, VariantRuns, read_runs, seed_schedule
from ablate.report.trivial import TrivialBaseline, best_trivial, warning
from ablate.stats import (
    Direction,
    Interval,
    PairedDifference,
    SeedSchedule,
    Verdict,
    hold_together,
    judge,
    mean_interval,
    paired_difference,
)
from ablate.store.records import StudyRecord, TrialRecord, TrialState, VariantRecord

if TYPE_CHECKING:
    from ablate.report.claims import ClaimVerdict


LEAST_SECONDS = 10.0
"""Of training, all paired seeds together: a speed measured in less says more about the load of the machine."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """A trial whose loss stopped being finite: its seed, the step (None if unknown) and what was recorded about it."""

    seed: int
    step: int | None
    reason: str


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
        failed: The trials that failed.
        difference: Objective of the variant minus that of the baseline, paired by seed; None for the baseline, or if a
            trial was pruned.
        verdict: None for the baseline, or if a trial was pruned.
        steps_to_baseline: How soon the validation loss got where the baseline ended.
        spent_to_baseline: The same on the axis of what the study matches (`Matching.axis`), rather than in steps.
        relative_speed: Tokens a second over those of the baseline, mean over the paired seeds; None if these trained
            for less than `LEAST_SECONDS` on either side.
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
    failed: tuple[Failure, ...]
    difference: PairedDifference | None
    verdict: Verdict | None
    steps_to_baseline: StepsToBaseline
    spent_to_baseline: StepsToBaseline
    relative_speed: float | None

    @property
    def pruned(self) -> bool:
        """Whether a trial of it was ended early; then it has no mean, no difference and no verdict.

        Its other seeds survived because they did better, so that their mean would flatter it.
        """
        return TrialState.PRUNED in self.states.values()


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
        schedule: How the study adds seeds; None if their number is fixed.
        together: Names of the variants whose verdicts hold together (`ablate.stats.family`).
        claims: What became of the claims of its space, in their order.
        matching: What all variants have as much of.
        tuning: What was tuned for each variant; None if nothing was.
        trivial: The best trivial baseline of its task; None if there is none.
        failures: All trials that failed, those among them that only tune or time others.
    """

    record: StudyRecord
    metric: str
    direction: Direction
    margin: float
    variants: tuple[VariantRow, ...]
    progress: dict[TrialState, int]
    answer: tuple[str, ...]
    schedule: SeedSchedule | None
    together: frozenset[str]
    claims: tuple[ClaimVerdict, ...]
    matching: Matching
    tuning: Tuning | None
    trivial: TrivialBaseline | None
    failures: tuple[Failure, ...] = ()

    @property
    def test_metric(self) -> str | None:
        """The objective's metric on the test, which no verdict reads; None if nothing was tested."""
        name = self.metric.replace("val_", "test_", 1)
        tested = name != self.metric and any(name in row.metrics for row in self.variants)
        return name if tested else None

    @property
    def baseline(self) -> VariantRow:
        """The row that all others are compared with."""
        return next(row for row in self.variants if row.name == self.record.baseline)

    @property
    def planned(self) -> int:
        """How many trials the study planned."""
        return len(self.record.planned)


@dataclass(frozen=True, slots=True)
class _Question:
    """By what a variant is judged."""

    metric: str
    direction: Direction
    margin: float
    schedule: SeedSchedule | None
    axis: str
    goals: Mapping[int, Goal]


def read_study(store: StudyReader, name: str) -> StudyReport:
    """Read a study out of the store and compare its variants with its baseline.

    Raises:
        NotFoundError: The store holds no such study.
    """
    record = store.study(name)
    metric, direction = record.objective["metric"], record.objective["direction"]
    margin = float(record.objective["margin"])
    runs = read_runs(store, record, metric)
    baseline = next(variant for variant in record.variants if variant.name == record.baseline)
    matching = read_matching(record, runs)
    goals = read_goals(store, runs[baseline.name], runs)
    question = _Question(metric, direction, margin, seed_schedule(record), matching.axis, goals)
    rows = tuple(
        _row(variant, baseline, runs[variant.name], runs[baseline.name], question) for variant in record.variants
    )
    verdicts = {row.name: row.verdict for row in rows if row.verdict is not None}
    together = hold_together(verdicts)
    states = [state for found in runs.values() for state in found.states.values()]
    progress = {state: states.count(state) for state in TrialState}
    answer = answer_sentences(
        rows,
        next(row for row in rows if row.name == baseline.name),
        together,
        metric,
        margin,
        complete=all(run.states for run in runs.values())
        and not any(progress[state] for state in (TrialState.WAITING, TrialState.RUNNING, TrialState.FAILED)),
        schedule=question.schedule,
    )
    if _searches(record):
        answer += best_sentence(rows, metric, direction, margin)
    answer += tuple(declared_otherwise(record))
    trivial = best_trivial(record.trivial, metric, direction)
    reached = next(row for row in rows if row.name == baseline.name).metrics.get(metric)
    return StudyReport(
        record=record,
        metric=metric,
        direction=direction,
        margin=margin,
        variants=rows,
        progress=progress,
        answer=answer + warning(trivial, reached.mean if reached else None, direction),
        schedule=question.schedule,
        together=together,
        claims=_claims(record, runs),
        matching=matching,
        tuning=read_tuning(store, record),
        trivial=trivial,
        failures=failures_of(runs) + failures_of(_scouting(store, record, metric)),
    )


def _searches(record: StudyRecord) -> bool:
    """Whether its design looks for the best point by one objective; by several there is a front instead."""
    design = record.space.get("design", {})
    return "sampler" in design and len(design.get("objectives", ())) < 2


def _scouting(store: StudyReader, record: StudyRecord, metric: str) -> Mapping[str, VariantRuns]:
    return read_runs(store, scouts_of(record), metric) if record.scout_trials else {}


def _row(
    variant: VariantRecord,
    baseline: VariantRecord,
    runs: VariantRuns,
    baseline_runs: VariantRuns,
    question: _Question,
) -> VariantRow:
    difference, verdict = None, None
    if variant.name != baseline.name and not runs.pruned:
        values, baseline_values = runs.values(question.metric), baseline_runs.values(question.metric)
        difference = paired_difference(values, baseline_values)
        verdict = judge(
            values,
            baseline_values,
            margin=question.margin,
            direction=question.direction,
            schedule=question.schedule,
            diverged={seed: trial.stopped_at for seed, trial in runs.diverged.items()},
            baseline_diverged={seed: trial.stopped_at for seed, trial in baseline_runs.diverged.items()},
        )
    change = variant.parameters - baseline.parameters
    steps = to_baseline(runs, question.goals, "step")
    return VariantRow(
        name=variant.name,
        hash=variant.hash,
        settings=variant.settings,
        parameters=variant.parameters,
        parameter_change=change / baseline.parameters if baseline.parameters else None,
        planned=tuple(runs.states),
        finished=tuple(sorted(runs.finished)),
        states=runs.states,
        metrics={} if runs.pruned else _metrics(runs),
        diverged=tuple(
            Divergence(seed, runs.diverged[seed].stopped_at, runs.diverged[seed].reason)
            for seed in sorted(runs.diverged)
        ),
        failed=failures_of({variant.name: runs}),
        difference=difference,
        verdict=verdict,
        steps_to_baseline=steps,
        spent_to_baseline=steps if question.axis == "steps" else to_baseline(runs, question.goals, question.axis),
        relative_speed=_relative_speed(runs.finished, baseline_runs.finished),
    )


def _claims(record: StudyRecord, runs: Mapping[str, VariantRuns]) -> tuple[ClaimVerdict, ...]:
    if not record.space.get("claims"):
        return ()
    from ablate.report.claims import judge_claims  # brings pydantic, which other studies are read without

    return judge_claims(record, runs)


def _metrics(runs: VariantRuns) -> dict[str, Interval]:
    names = sorted({name for trial in runs.finished.values() for name in trial.metrics})
    return {name: _interval(list(runs.values(name).values())) for name in names}


def _interval(values: list[float]) -> Interval:
    if all(math.isfinite(value) for value in values):
        return mean_interval(values)
    return Interval(None, None, None, len(values))  # a side metric may overflow; the objective's is never here then


def _relative_speed(finished: Mapping[int, TrialRecord], baseline: Mapping[int, TrialRecord]) -> float | None:
    pairs = [(finished[seed], baseline[seed]) for seed in sorted(finished.keys() & baseline.keys())]
    if min(math.fsum(pair[side].seconds for pair in pairs) for side in (0, 1)) < LEAST_SECONDS:
        return None
    ratios = [
        (trial.tokens / trial.seconds) / (base.tokens / base.seconds)
        for trial, base in pairs
        if trial.seconds > 0 and base.seconds > 0 and base.tokens > 0
    ]
    return math.fsum(ratios) / len(ratios) if ratios else None

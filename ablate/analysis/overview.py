"""A study in one line: its best and its simplest variant, what it has cost and how long it will still take."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ablate.analysis.fairness import read_tuning
from ablate.analysis.judging import judge_trials, read_allowances
from ablate.analysis.runs import (
    StudyReader,
    VariantRuns,
    confirming,
    pairs_windows,
    read_confirming,
    read_runs,
    seed_schedule,
)
from ablate.analysis.scaling import at_own_length
from ablate.store.records import StudyRecord, TrialRecord

PACE = 20
"""Number of most recent trials from which the pace is estimated."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The key figures of a study.

    Attributes:
        metric: Of its objective.
        best: The variant with the best mean of the metric over its finished seeds, of those that diverged at none;
            None before any has finished.
        best_value: That mean.
        simplest: The variant with fewest parameters among the baseline and those that a verdict accepts.
        simplest_parameters: How many it has.
        seconds: Of training so far, evaluation left out.
        flops: Arithmetic of training so far, forward and backward.
        seconds_left: An estimate of the time until the last trial ends, from the pace of those that have; None when
            nothing is left or no trial has ended.
    """

    metric: str
    best: str | None
    best_value: float | None
    simplest: str
    simplest_parameters: int
    seconds: float
    flops: float
    seconds_left: float | None


def read_overview(store: StudyReader, name: str) -> Overview:
    """Read the key figures of a study, without the curves of its trials.

    Raises:
        NotFoundError: There is no such study.
    """
    record = store.study(name)
    own = at_own_length(record)
    trials = store.trials([planned.key for planned in (*record.planned, *record.confirm_trials)])
    metric, minimize = record.objective["metric"], record.objective["direction"] == "minimize"
    runs = read_runs(store, own, metric)
    values = {
        name: [trial.metrics.get(metric, math.nan) for trial in run.finished.values()] for name, run in runs.items()
    }
    known = {name: [value for value in of if math.isfinite(value)] for name, of in values.items()}
    means = {name: math.fsum(of) / len(of) for name, of in known.items() if of and not runs[name].diverged}
    best = (min if minimize else max)(means, key=lambda variant: means[variant]) if means else None
    parameters = {variant.name: variant.parameters for variant in record.variants}
    simplest = min(_sufficient(store, own, runs), key=lambda variant: parameters[variant])
    return Overview(
        metric=metric,
        best=best,
        best_value=means[best] if best is not None else None,
        simplest=simplest,
        simplest_parameters=parameters[simplest],
        seconds=math.fsum(trial.seconds for trial in trials.values()),
        flops=math.fsum(trial.flops for trial in trials.values()),
        seconds_left=_seconds_left(trials.values(), len(record.planned) + len(record.confirm_trials)),
    )


def _sufficient(store: StudyReader, record: StudyRecord, runs: Mapping[str, VariantRuns]) -> Iterable[str]:
    """The baseline, and the variants that a verdict accepts."""
    yield record.baseline
    fresh = read_confirming(store, record)
    of_all = runs, seed_schedule(record), read_allowances(record, runs, read_tuning(store, record))
    of_chosen = fresh, seed_schedule(confirming(record)), read_allowances(confirming(record), fresh) if fresh else None
    for variant in record.variants:
        trials, schedule, allowances = of_chosen if variant.name in fresh else of_all
        unjudged = variant.name == record.baseline or runs[variant.name].pruned
        if unjudged or allowances is None or (variant.chosen and variant.name not in fresh):
            continue
        verdict = judge_trials(
            trials[variant.name],
            trials[record.baseline],
            metric=record.objective["metric"],
            margin=float(record.objective["margin"]),
            direction=record.objective["direction"],
            schedule=schedule,
            allowance=allowances.versus(variant.name, record.baseline),
            unit="window" if pairs_windows(record) else "seed",
        )
        if verdict.is_acceptable:
            yield variant.name


def _seconds_left(trials: Iterable[TrialRecord], planned: int) -> float | None:
    """Seconds that the remaining trials will take, at the pace of the latest ones."""
    ended = [trial for trial in trials if trial.finished_at is not None and trial.started_at is not None]
    left = planned - len(ended)
    if not left or len(ended) < 2:
        return None
    ends = sorted(trial.finished_at for trial in ended if trial.finished_at is not None)
    recent = ends[-PACE:]
    return left * (recent[-1] - recent[0]).total_seconds() / (len(recent) - 1)

"""A study in one line: its best and its simplest variant, what it has cost and how long it will still take."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ablate.analysis.allowances import Allowances
from ablate.analysis.runs import seed_schedule
from ablate.analysis.scaling import at_own_length
from ablate.stats import judge, paired_difference, tails_of
from ablate.store.records import SETTLED, StudyRecord, TrialRecord, TrialState

PACE = 20
"""Number of most recent trials from which the pace is estimated."""


class OverviewReader(Protocol):
    """The part of a store's interface that an overview uses: no curves."""

    def study(self, name: str) -> StudyRecord:
        """The study of this name.

        Raises:
            NotFoundError: There is none.
        """

    def trials(self, keys: list[str]) -> dict[str, TrialRecord]:
        """The trials that exist, by key."""


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


def read_overview(store: OverviewReader, name: str) -> Overview:
    """Read the key figures of a study, without the curves of its trials.

    Raises:
        NotFoundError: There is no such study.
    """
    record = store.study(name)
    trials = store.trials([planned.key for planned in (*record.planned, *record.confirm_trials)])
    metric, minimize = record.objective["metric"], record.objective["direction"] == "minimize"
    values: dict[str, dict[int, float]] = {variant.name: {} for variant in at_own_length(record).variants}
    diverged: dict[str, dict[int, int | None]] = {variant.name: {} for variant in record.variants}
    failed: dict[str, int] = {}
    own = at_own_length(record)
    for planned in own.planned:
        trial = trials.get(planned.key)
        if trial is not None and trial.state is TrialState.FAILED:
            failed[planned.variant] = failed.get(planned.variant, 0) + 1
        if trial is None or trial.state not in SETTLED:
            continue
        value = trial.metrics.get(metric, math.nan)
        if trial.state is TrialState.FINISHED and math.isfinite(value):
            values[planned.variant][planned.seed] = value
        else:
            diverged[planned.variant][planned.seed] = trial.stopped_at
    means = {
        variant: math.fsum(seeds.values()) / len(seeds)
        for variant, seeds in values.items()
        if seeds and not diverged[variant]
    }
    best = (min if minimize else max)(means, key=lambda variant: means[variant]) if means else None
    parameters = {variant.name: variant.parameters for variant in record.variants}
    sufficient = _sufficient(own, values, diverged, failed, _fresh(record, trials))
    simplest = min(sufficient, key=lambda variant: parameters[variant])
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


def _sufficient(
    record: StudyRecord,
    values: Mapping[str, dict[int, float]],
    diverged: Mapping[str, dict[int, int | None]],
    failed: Mapping[str, int],
    fresh: Mapping[str, Mapping[int, float]],
) -> Iterable[str]:
    """The baseline, and the variants that a verdict accepts."""
    yield record.baseline
    sign, baseline = 1.0 if record.objective["direction"] == "minimize" else -1.0, values[record.baseline]
    differences = [
        [sign * one for one in paired_difference(of_variant, baseline).values]
        for variant, of_variant in values.items()
        if variant != record.baseline and not diverged[variant]
    ]
    allowances = Allowances(record.baseline, failed, tails=tails_of(differences))
    chosen = {variant.name for variant in record.variants if variant.chosen}
    for variant in values:
        if variant != record.baseline and values[variant]:
            if variant in chosen:
                if _holds_on_fresh_seeds(record, variant, fresh):
                    yield variant
                continue
            verdict = judge(
                values[variant],
                values[record.baseline],
                margin=float(record.objective["margin"]),
                direction=record.objective["direction"],
                schedule=seed_schedule(record),
                diverged=diverged[variant],
                baseline_diverged=diverged[record.baseline],
                allowance=allowances.versus(variant, record.baseline),
            )
            if verdict.is_acceptable:
                yield variant


def _fresh(record: StudyRecord, trials: Mapping[str, TrialRecord]) -> dict[str, dict[int, float]]:
    """Variant to objective by seed of its confirmation trials; only variants whose confirmation trials all finished."""
    planned: dict[str, dict[int, float]] = {}
    lost = set()
    for one in record.confirm_trials:
        trial = trials.get(one.key)
        value = trial.metrics.get(record.objective["metric"], math.nan) if trial is not None else math.nan
        if math.isfinite(value):
            planned.setdefault(one.variant, {})[one.seed] = value
        else:
            lost.add(one.variant)
    return {variant: values for variant, values in planned.items() if variant not in lost}


def _holds_on_fresh_seeds(record: StudyRecord, variant: str, fresh: Mapping[str, Mapping[int, float]]) -> bool:
    if variant not in fresh or record.baseline not in fresh:
        return False
    margin, direction = float(record.objective["margin"]), record.objective["direction"]
    return judge(fresh[variant], fresh[record.baseline], margin=margin, direction=direction).is_acceptable


def _seconds_left(trials: Iterable[TrialRecord], planned: int) -> float | None:
    """Seconds that the remaining trials will take, at the pace of the latest ones."""
    ended = [trial for trial in trials if trial.finished_at is not None and trial.started_at is not None]
    left = planned - len(ended)
    if not left or len(ended) < 2:
        return None
    ends = sorted(trial.finished_at for trial in ended if trial.finished_at is not None)
    recent = ends[-PACE:]
    return left * (recent[-1] - recent[0]).total_seconds() / (len(recent) - 1)

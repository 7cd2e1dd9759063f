"""How soon each variant got where the baseline ended: steps, tokens, seconds or FLOP to its final validation loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ablate.analysis.runs import Curve, StudyReader, VariantRuns


@dataclass(frozen=True, slots=True)
class StepsToBaseline:
    """Steps (or tokens, seconds, FLOP) until a validation loss reached the final one of the baseline, seed by seed.

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
class Goal:
    """Where the baseline ended with one seed, and who got there.

    Attributes:
        loss: Its final validation loss, read off the curve and not the metrics, so that like is compared with like.
        crossings: Key of a trial to its curve round the point where it got there.
    """

    loss: float
    crossings: Mapping[str, Curve]


def read_goals(store: StudyReader, baseline: VariantRuns, runs: Mapping[str, VariantRuns]) -> dict[int, Goal]:
    """Seed to goal, for those at which the baseline finished with a curve."""
    curves = store.curves([trial.key for trial in baseline.finished.values()])
    goals = {}
    for seed, trial in baseline.finished.items():
        if evaluated := _evaluated(curves.get(trial.key, ()), "step"):
            loss = evaluated[-1][1]
            keys = [run.finished[seed].key for run in runs.values() if seed in run.finished]
            goals[seed] = Goal(loss, store.crossings(keys, loss))
    return goals


def to_baseline(runs: VariantRuns, goals: Mapping[int, Goal], axis: str) -> StepsToBaseline:
    """How soon a variant got there.

    Args:
        runs: Its trials.
        goals: By seed.
        axis: `step`, `tokens`, `seconds` or `flops`.
    """
    compared = [seed for seed in goals if seed in runs.finished or seed in runs.diverged]
    reached = []
    for seed in compared:
        crossing = goals[seed].crossings.get(runs.finished[seed].key, ()) if seed in runs.finished else ()
        where = first_step_at(crossing, goals[seed].loss, axis)
        if where is not None:
            reached.append(where)
    mean = math.fsum(reached) / len(compared) if reached and len(reached) == len(compared) else None
    return StepsToBaseline(mean, len(reached), len(compared))


def first_step_at(curve: Curve, target: float, axis: str = "step") -> float | None:
    """The first step at which the validation loss is at or below `target`, on straight lines between its points.

    Args:
        curve: A learning curve, or as much of it as lies round that step.
        target: A validation loss.
        axis: `step`, or `tokens`, `seconds` or `flops` in its place.

    Returns:
        A step, in general not whole; None if the curve stays above the target.
    """
    before: tuple[float, float] | None = None
    for step, loss in _evaluated(curve, axis):
        if loss <= target:
            if before is None:
                return float(step)
            start, height = before
            return start + (step - start) * (height - target) / (height - loss)
        before = step, loss
    return None


def _evaluated(curve: Curve, axis: str) -> list[tuple[float, float]]:
    """Place on the axis and validation loss of the points that have a finite one."""
    return [
        (getattr(point, axis), point.val_loss)
        for point in curve
        if point.val_loss is not None and math.isfinite(point.val_loss)
    ]

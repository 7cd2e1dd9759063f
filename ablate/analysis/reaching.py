"""Steps, tokens, seconds or FLOP until each variant reached the final validation loss of the baseline.

Both curves are smoothed to the nearest falling curve. A raw curve reaches a target by the first noise that dips below
it, so that a variant equal to the baseline would seem to get there before the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ablate.analysis.runs import Curve, VariantRuns
from ablate.stats.trend import falling

_ROUNDING = 1e-12
"""Of a mean, as a share of it."""


@dataclass(frozen=True, slots=True)
class StepsToBaseline:
    """Steps (or tokens, seconds, FLOP) until a validation loss reached the final one of the baseline, seed by seed.

    Attributes:
        median: Median over the seeds, those counted as later than all others that did not get there; None if it is one
            of these.
        reached: Seeds that reached it.
        of: Seeds that were compared: the baseline finished, and the variant finished or diverged. A trial that
            diverged counts as not having reached it.
    """

    median: float | None
    reached: int
    of: int


def read_goals(baseline: VariantRuns, evaluated: Mapping[str, Curve]) -> dict[int, float]:
    """Seed to the final validation loss of the baseline, where it finished with a curve.

    It is read off the smoothed curve and not the metrics, so that like is compared with like.

    Args:
        baseline: Its trials.
        evaluated: Key of a trial to its points with a validation loss.
    """
    curves = {seed: evaluated.get(trial.key, ()) for seed, trial in baseline.finished.items()}
    return {seed: falling(_losses(curve))[-1][1] for seed, curve in curves.items() if curve}


def to_baseline(
    runs: VariantRuns, goals: Mapping[int, float], axis: str, evaluated: Mapping[str, Curve]
) -> StepsToBaseline:
    """When a variant reached the final loss of the baseline.

    Args:
        runs: Its trials.
        goals: By seed.
        axis: `step`, `tokens`, `seconds` or `flops`.
        evaluated: Key of a trial to its points with a validation loss.
    """
    compared = [seed for seed in goals if seed in runs.finished or seed in runs.diverged]
    finished = [seed for seed in compared if seed in runs.finished]
    steps = [first_step_at(evaluated.get(runs.finished[seed].key, ()), goals[seed], axis) for seed in finished]
    reached = sorted(where for where in steps if where is not None)
    middle, last = (len(compared) - 1) // 2, len(compared) // 2
    median = (reached[middle] + reached[last]) / 2 if compared and last < len(reached) else None
    return StepsToBaseline(median, len(reached), len(compared))


def first_step_at(curve: Curve, target: float, axis: str = "step") -> float | None:
    """The first step at which the smoothed validation loss is at or below `target`.

    Between the points it is a straight line; where neighbours were pooled, it is their mean at the last of them.

    Args:
        curve: A learning curve; points without a finite validation loss are passed over.
        target: A validation loss.
        axis: `step`, or `tokens`, `seconds` or `flops` in its place.

    Returns:
        A step, in general not whole; None if the curve stays above the target.
    """
    evaluated = [point for point in curve if point.val_loss is not None and math.isfinite(point.val_loss)]
    losses = _losses(evaluated)
    if not losses or min(losses) > target + _ROUNDING * abs(target):
        return None  # no mean of pooled losses is below all of them
    smoothed = [(float(getattr(evaluated[last], axis)), loss) for last, loss in falling(losses)]
    before: tuple[float, float] | None = None
    for place, loss in smoothed:
        if loss <= target:
            if before is None:
                return place
            start, height = before
            return start + (place - start) * (height - target) / (height - loss)
        before = place, loss
    return None


def _losses(curve: Curve) -> list[float]:
    return [point.val_loss for point in curve if point.val_loss is not None]

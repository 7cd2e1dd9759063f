"""The chance that further seeds decide a comparison, given what its seeds leave possible.

A number of seeds that would decide if the observed difference and noise were the true ones promises too much: few
seeds hardly tell either. Here both are drawn from what n seeds leave possible (Student's predictive distribution: a
flat prior on the mean and on the logarithm of the standard deviation), then the further seeds, and the t-test is made
on all seeds together. So the chance is right on average over differences, and too high for a true difference near the
tested value, which no number of seeds may tell from it.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from ablate.stats import special
from ablate.stats.schedule import ExtendedSeeds, SeedPlan

_DRAWS, _SEED = 2_000, 0


def chance_of_decision(distance: float, sd: float, n: int, further: int, schedule: SeedPlan | None = None) -> float:
    """Probability that a one-sided t-test on all seeds decides on either side, after `further` more seeds.

    Args:
        distance: Observed mean difference minus the tested value.
        sd: Observed standard deviation of the differences, above 0.
        n: Paired seeds so far, at least 2.
        further: Seeds that are added, at least 1.
        schedule: How seeds are added; None if their number was fixed beforehand and has spent its error rate.
    """
    levels = ExtendedSeeds((n, n + further)) if schedule is None else schedule
    return _chance(round(distance / sd, 3), n, further, levels.level(n + further))


@functools.lru_cache(maxsize=4096)
def _chance(distance: float, n: int, further: int, level: float) -> float:
    """The same in units of the standard deviation."""
    rng, total = np.random.default_rng(_SEED), n + further
    sd = np.sqrt((n - 1) / rng.chisquare(n - 1, _DRAWS))
    truth = distance + sd * rng.standard_normal(_DRAWS) / math.sqrt(n)
    mean = truth + sd * rng.standard_normal(_DRAWS) / math.sqrt(further)
    within = sd**2 * rng.chisquare(further - 1, _DRAWS) if further > 1 else np.zeros(_DRAWS)
    squares = (n - 1) + within + n * further / total * (distance - mean) ** 2
    t = (n * distance + further * mean) / total / np.sqrt(squares / (total - 1) / total)
    return float(np.mean(np.abs(t) > -special.stdtrit(total - 1, level)))

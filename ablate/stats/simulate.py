"""The rule of `judge` over many simulated comparisons at once: how often it is wrong, and how often it decides.

Shapes: S simulated comparisons, N paired seeds. Differences are oriented so that positive is worse.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from ablate.stats.make_boundaries import running_p
from ablate.stats.schedule import ERROR, SeedPlan


@dataclass(frozen=True, slots=True)
class Decisions:
    """The verdicts on S simulated comparisons.

    Attributes:
        needed: Which of them were judged `needed`: booleans [S].
        not_needed: Which were judged `not needed` or `better` [S].
        better: Which were judged `better` [S].
        seeds: Paired seeds that each used [S].
    """

    needed: NDArray[np.bool_]
    not_needed: NDArray[np.bool_]
    better: NDArray[np.bool_]
    seeds: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rate:
    """The frequency of an outcome among simulated comparisons.

    Attributes:
        share: Of the comparisons.
        low: Lower bound of its exact (Clopper and Pearson) 95 % Monte Carlo interval.
        high: Upper bound of the same.
    """

    share: float
    low: float
    high: float


def decide(differences: NDArray[np.float64], margin: float, schedule: SeedPlan | None = None) -> Decisions:
    """Judge every row of differences [S, N]; without a schedule on all N, else at its looks up to N.

    The rule is that of `judge` below `bootstrap.MANY` seeds.
    """
    count, last = differences.shape
    above, below = running_p(differences, margin), running_p(-differences, -margin)
    looks = np.arange(2, last + 1)
    if schedule is None:
        levels = np.where(looks == last, ERROR, 0.0)
    else:
        levels = np.array([schedule.level(int(n)) for n in looks])
    decided = (above < levels) | (below < levels)
    at = np.where(decided.any(axis=1), decided.argmax(axis=1), last - 2)
    row = np.arange(count)
    far_below = running_p(-differences, margin)  # each look stops at what it decides, so later ones add no `better`
    return Decisions(
        needed=above[row, at] < levels[at],
        not_needed=below[row, at] < levels[at],
        better=far_below[row, at] < levels[at],
        seeds=looks[at],
    )


def rate(happened: NDArray[np.bool_]) -> Rate:
    """The share of true values with its Monte Carlo interval."""
    hits, count = int(happened.sum()), len(happened)
    low = float(betaincinv(hits, count - hits + 1, 0.025)) if hits else 0.0
    high = float(betaincinv(hits + 1, count - hits, 0.975)) if hits < count else 1.0
    return Rate(hits / count, low, high)

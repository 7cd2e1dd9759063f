"""One-sided bounds of a mean paired difference, at the end or at each look of a schedule of seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

from ablate.stats.bootstrap import MANY, bca_interval
from ablate.stats.paired import summarise
from ablate.stats.schedule import ERROR, SeedSchedule

LEAST_PAIRS = 2
"""Fewer paired seeds show no spread, so they decide nothing."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A lower and an upper bound of the true difference, each wrong with at most the declared error rate.

    Attributes:
        mean: The mean difference, in the unit of the values.
        low: Lower bound.
        high: Upper bound.
        n: Paired seeds that they rest on.
    """

    mean: float
    low: float
    high: float
    n: int


def bounds(differences: Sequence[float], schedule: SeedSchedule | None, error: float = ERROR) -> Iterator[Bounds]:
    """The bounds to decide by, in the order of looks; without a schedule one pair of bounds, from all differences.

    The first look whose bounds decide is the verdict, and stays it: the error rate holds over all looks together.
    Nothing comes out below two seeds, before the schedule's first look, or as long as all differences are the same.

    Args:
        differences: One for each paired seed, in the order of the seeds.
        schedule: How seeds were added; None if their number was fixed beforehand.
        error: How often each bound may be wrong.
    """
    if schedule is None:
        if len(differences) >= LEAST_PAIRS and not summarise(differences).is_flat:
            yield _bounds(differences, error, bootstrap=len(differences) >= MANY)
        return
    for n in range(schedule.start, min(len(differences), schedule.max) + 1):
        level = schedule.level(n, error)
        if level > 0 and not summarise(differences[:n]).is_flat:
            yield _bounds(differences[:n], level, bootstrap=False)  # the levels are those of t-tests


def _bounds(differences: Sequence[float], error: float, *, bootstrap: bool) -> Bounds:
    summary = summarise(differences)
    assert summary.difference is not None
    assert summary.standard_error is not None
    half = -float(stdtrit(summary.n - 1, error)) * summary.standard_error
    low, high = summary.difference - half, summary.difference + half
    if bootstrap:
        others = bca_interval(differences, 1 - 2 * error)
        low, high = min(low, others[0]), max(high, others[1])
    return Bounds(summary.difference, low, high, summary.n)

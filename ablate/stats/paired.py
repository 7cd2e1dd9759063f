"""Means and paired differences with their t intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scipy.special import stdtrit


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds with its two-sided t interval, in the unit of the values.

    Attributes:
        mean: None without values.
        low: Lower bound; None below two values, which say nothing about their spread.
        high: Upper bound; None below two values.
        n: How many values.
    """

    mean: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The mean of variant minus baseline over the seeds that both have, in the unit of the values.

    Attributes:
        difference: Mean difference; None without a common seed.
        low: Lower bound of the two-sided t interval; None below two common seeds.
        high: Upper bound of the same; None below two common seeds.
        n: How many common seeds.
        sd: Standard deviation of the differences (n - 1 in the denominator); None below two common seeds.
        standard_error: `sd / sqrt(n)`; None below two common seeds.
    """

    difference: float | None
    low: float | None
    high: float | None
    n: int
    sd: float | None
    standard_error: float | None


def mean_interval(values: Iterable[float], confidence: float = 0.95) -> Interval:
    """The mean of independent values and its two-sided t interval; the bounds are None for fewer than two values.

    Raises:
        ValueError: A value is not finite (a trial that diverged has no place in a mean).
    """
    paired = _summary(list(values), confidence)
    return Interval(paired.difference, paired.low, paired.high, paired.n)


def paired_difference(
    variant: Mapping[int, float], baseline: Mapping[int, float], confidence: float = 0.95
) -> PairedDifference:
    """Variant minus baseline over their common seeds (seed to value), with its two-sided t interval.

    Raises:
        ValueError: A value is not finite.
    """
    common = sorted(variant.keys() & baseline.keys())
    return _summary([variant[seed] - baseline[seed] for seed in common], confidence)


def _summary(values: list[float], confidence: float) -> PairedDifference:
    if not all(math.isfinite(value) for value in values):
        raise ValueError(f"only finite values have a mean, got {values}")
    n = len(values)
    if n < 2:
        return PairedDifference(values[0] if values else None, None, None, n, None, None)
    mean, sd = statistics.fmean(values), statistics.stdev(values)
    standard_error = sd / math.sqrt(n)
    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * standard_error
    return PairedDifference(mean, mean - half, mean + half, n, sd, standard_error)

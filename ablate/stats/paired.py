"""Means and paired differences with their intervals and their effect size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ablate.stats import special
from ablate.stats.bootstrap import MANY, bca_interval

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds with its two-sided interval, in the unit of the values.

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
        low: Lower bound of the two-sided interval (t; from `MANY` seeds on the wider of t and BCa bootstrap, on either
            side); None below two seeds.
        high: Upper bound of the same; None below two common seeds.
        n: How many common seeds.
        sd: Standard deviation of the differences (n - 1 in the denominator); None below two common seeds.
        standard_error: `sd / sqrt(n)`; None below two common seeds.
        effect_size: Mean difference in standard deviations of the differences, with Hedges's correction for few seeds;
            None below two common seeds and without any spread.
        values: The differences, in the order of their seeds; empty for the difference of two unpaired means.
        freedom: Degrees of freedom of the standard error; None: `n - 1`, those of paired differences.
    """

    difference: float | None
    low: float | None
    high: float | None
    n: int
    sd: float | None
    standard_error: float | None
    effect_size: float | None = None
    values: tuple[float, ...] = field(default=(), repr=False)
    freedom: float | None = None

    @property
    def is_paired(self) -> bool:
        """Whether runs were paired, rather than two means compared."""
        return self.freedom is None

    @property
    def degrees(self) -> float:
        """Degrees of freedom of the standard error."""
        return self.n - 1 if self.freedom is None else self.freedom

    @property
    def is_flat(self) -> bool:
        """Whether all values are one but for rounding, as those of accuracies of a few rows may be.

        They show no noise that a mean could be held against, so they decide nothing.
        """
        return self.sd is not None and self.sd <= _ROUNDING * max([1.0, *map(abs, self.values)])

    def p_above(self, tested: float) -> float:
        """P-value of the one-sided t-test whose rejection says that the true difference lies above `tested`.

        1 below two seeds; without any spread 0 or 1.
        """
        if self.difference is None or self.standard_error is None:
            return 1.0
        distance = self.difference - tested
        if self.standard_error == 0:
            return 0.0 if distance > 0 else 1.0
        return float(special.stdtr(self.degrees, -distance / self.standard_error))

    def p_below(self, tested: float) -> float:
        """The same for a true difference below `tested`."""
        if self.difference is None or self.standard_error is None:
            return 1.0
        distance = tested - self.difference
        if self.standard_error == 0:
            return 0.0 if distance > 0 else 1.0
        return float(special.stdtr(self.degrees, -distance / self.standard_error))


def mean_interval(values: Iterable[float], confidence: float = 0.95) -> Interval:
    """The mean of independent values and its two-sided interval; the bounds are None for fewer than two values.

    Raises:
        ValueError: A value is not finite (a trial that diverged has no place in a mean).
    """
    summary = summarise(list(values), confidence)
    return Interval(summary.difference, summary.low, summary.high, summary.n)


def paired_difference(
    variant: Mapping[int, float], baseline: Mapping[int, float], confidence: float = 0.95
) -> PairedDifference:
    """Variant minus baseline over their common seeds (seed to value), with its two-sided interval.

    Raises:
        ValueError: A value is not finite.
    """
    common = sorted(variant.keys() & baseline.keys())
    return summarise([variant[seed] - baseline[seed] for seed in common], confidence)


def summarise(values: Sequence[float], confidence: float = 0.95) -> PairedDifference:
    """The summary of differences that are known already, one for each seed.

    Raises:
        ValueError: A value is not finite.
    """
    if not all(math.isfinite(value) for value in values):
        raise ValueError(f"only finite values have a mean, got {list(values)}")
    n, kept = len(values), tuple(values)
    if n < 2:
        return PairedDifference(values[0] if values else None, None, None, n, None, None, None, kept)
    mean, sd = math.fsum(values) / n, _spread(values)
    standard_error = sd / math.sqrt(n)
    half = float(special.stdtrit(n - 1, (1 + confidence) / 2)) * standard_error
    low, high = mean - half, mean + half
    if n >= MANY:
        others = bca_interval(values, confidence)
        low, high = min(low, others[0]), max(high, others[1])
    effect_size = mean / sd * hedges_factor(n - 1) if sd > 0 else None
    return PairedDifference(mean, low, high, n, sd, standard_error, effect_size, kept)


def unpaired_difference(
    variant: Sequence[float], baseline: Sequence[float], confidence: float = 0.95
) -> PairedDifference:
    """The difference of two independent means, with Welch's interval, for runs that share nothing.

    The variances may differ (Welch 1947); the degrees of freedom are Satterthwaite's. `n` is the number of runs of the
    side that has fewer, `sd` what a difference of one run from each side would have, so that `sd / sqrt(n)` is the
    standard error if both sides have as many runs. Bounds are None below two runs on either side, or if no run differs
    from another.

    Raises:
        ValueError: A value is not finite.
    """
    ours, theirs = summarise(variant), summarise(baseline)
    n = min(ours.n, theirs.n)
    if ours.difference is None or theirs.difference is None:
        return PairedDifference(None, None, None, n, None, None, freedom=0.0)
    difference = ours.difference - theirs.difference
    if ours.sd is None or theirs.sd is None:
        return PairedDifference(difference, None, None, n, None, None, freedom=0.0)
    of_ours, of_theirs = ours.sd**2 / ours.n, theirs.sd**2 / theirs.n
    if ours.is_flat and theirs.is_flat:
        return PairedDifference(difference, None, None, n, 0.0, 0.0, freedom=0.0)
    freedom = (of_ours + of_theirs) ** 2 / (of_ours**2 / (ours.n - 1) + of_theirs**2 / (theirs.n - 1))
    standard_error = math.sqrt(of_ours + of_theirs)
    half = float(special.stdtrit(freedom, (1 + confidence) / 2)) * standard_error
    sd = math.hypot(ours.sd, theirs.sd)
    return PairedDifference(difference, difference - half, difference + half, n, sd, standard_error, freedom=freedom)


def _spread(values: Sequence[float]) -> float:
    """Standard deviation (n - 1), 0 for equal values; `statistics.stdev`, which counts in fractions, takes 20 times."""
    n, origin = len(values), values[0]
    mean = math.fsum(value - origin for value in values) / n
    return math.sqrt(math.fsum((value - origin - mean) ** 2 for value in values) / (n - 1))


def hedges_factor(freedom: int) -> float:
    """What unbiases a standardised mean: `gamma(f/2) / (sqrt(f/2) gamma((f-1)/2))`, 0 for one degree of freedom.

    With one degree of freedom a standardised mean has no expectation, and two seeds say nothing about its size.
    """
    if freedom < 2:
        return 0.0
    return math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2)) / math.sqrt(freedom / 2)

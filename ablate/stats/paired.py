"""Means and paired differences with their intervals, their effect size, and a test without a normal distribution.

The interval is Student's t; from `MANY` seeds on it must agree with the BCa bootstrap of a mean (Efron 1987). Below
that the t interval covers better, also when the values are skewed; `tests/stats/test_paired.py` simulates both.
scipy has the bootstrap too, but importing `scipy.stats` takes longer than reading a study. The exact sign-flip test is
the check on a t-test that assumes only a symmetric distribution.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ablate.stats import special

MANY = 30
"""From this many seeds on a bound is the more cautious of the bootstrap's and t's, also that of an interval: t misses
skewed values, the bootstrap misses values with two long tails."""
RESAMPLES = 9_999
_CHUNK = 1_000
_MOST_KEPT = 5_000
"""Values of which resamples are kept: 50 MB."""
_SEED = 0


def bca_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Two-sided BCa interval of the mean of independent values; the same values give the same interval.

    Raises:
        ValueError: There are fewer than two values.
    """
    if len(values) < 2:
        raise ValueError(f"a bootstrap needs at least 2 values, got {len(values)}")
    array = np.asarray(values, dtype=np.float64)
    low, high = bca_quantiles(array, resampled_means(array), ((1 - confidence) / 2, (1 + confidence) / 2))
    return low, high


def resampled_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means of `RESAMPLES` resamples with replacement."""
    n = len(values)
    resamples = _kept(n) if n <= _MOST_KEPT else _draw(n)
    # A product of a BLAS would wait for its threads for longer than this takes.
    sums = [np.einsum("rn,n->r", times.astype(np.float64), values) for times in resamples]
    return np.concatenate(sums) / n


def _draw(n: int) -> Iterator[NDArray[np.uint8]]:
    """How often each of `n` values is in each resample, `_CHUNK` resamples at a time."""
    rng = np.random.default_rng(_SEED)
    for begin in range(0, RESAMPLES, _CHUNK):
        rows = min(_CHUNK, RESAMPLES - begin)
        cells = rng.integers(0, n, (rows, n)) + n * np.arange(rows)[:, None]
        yield np.bincount(cells.ravel(), minlength=rows * n).astype(np.uint8).reshape(rows, n)


@lru_cache(maxsize=2)
def _kept(n: int) -> tuple[NDArray[np.uint8], ...]:
    """All of `_draw`: drawing them takes longer than the means of a whole study."""
    return tuple(_draw(n))


def bca_quantiles(
    values: NDArray[np.float64], resampled: NDArray[np.float64], probabilities: tuple[float, float]
) -> tuple[float, float]:
    """Quantiles of resampled means at probabilities corrected for bias (z0) and for skew (acceleration a).

    `p -> Phi(z0 + (z0 + z_p) / (1 - a (z0 + z_p)))`, where z0 is the normal quantile of the share of resampled means
    below the mean, and a is a sixth of the skewness of the jackknife's influence values.
    """
    centred = values - values.mean()
    squares = float((centred**2).sum())
    if squares == 0:
        return float(values[0]), float(values[0])
    share = ((resampled < values.mean()).mean() + (resampled <= values.mean()).mean()) / 2
    z0 = special.ndtri(share)
    acceleration = float((centred**3).sum()) / (6 * squares**1.5)
    z = z0 + special.ndtri(np.asarray(probabilities))
    low, high = np.quantile(resampled, special.ndtr(z0 + z / (1 - acceleration * z)))
    return float(low), float(high)


_ROUNDING = 1e-12


def as_share(logarithm: float) -> float:
    """By which share one value lies above another, from the difference of their logarithms; infinite ones stay."""
    return math.expm1(logarithm) if math.isfinite(logarithm) else logarithm


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

    @property
    def is_zero(self) -> bool:
        """Whether both sides are equal at every seed, but for rounding."""
        return self.is_flat and abs(self.difference or 0.0) <= _ROUNDING

    def as_shares(self) -> PairedDifference:
        """The same of differences of logarithms as shares: 0.05 is 5 % more. The spread stays theirs."""
        known = (self.difference, self.low, self.high)
        difference, low, high = (None if value is None else as_share(value) for value in known)
        return replace(self, difference=difference, low=low, high=high, values=tuple(map(as_share, self.values)))

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


MOST_EXACT = 20
"""Seeds up to which every one of the 2^n sign patterns is counted; beyond, `_DRAWN` random ones."""
_DRAWN = 99_999
_SIGN_CHUNK = 10_000
_TIE = 1e-12
"""Relative rounding error within which two sums count as equal."""


@dataclass(frozen=True, slots=True)
class SignFlip:
    """Result of a two-sided sign-flip test.

    Attributes:
        p: Share of the sign patterns whose mean lies at least as far from the tested value as the observed one.
        floor: The least p that this many seeds can give, 2 / 2^n: below 6 seeds it is above 5 %, and a large p then
            says nothing against the difference.
    """

    p: float
    floor: float


def sign_flip(differences: Sequence[float], tested: float = 0.0) -> SignFlip:
    """Test whether differences (one for each seed) are symmetric about `tested`.

    Raises:
        ValueError: There is no difference.
    """
    if not differences:
        raise ValueError("a sign-flip test needs at least 1 difference")
    shifted = np.asarray(differences, dtype=np.float64) - tested
    n, observed = len(shifted), abs(float(shifted.sum())) * (1 - _TIE)
    if n <= MOST_EXACT:
        # The overall sign makes no difference to a two-sided test, so the first seed's is kept.
        sums = shifted[:1]
        for value in shifted[1:]:
            sums = np.concatenate([sums + value, sums - value])
        return SignFlip(float((np.abs(sums) >= observed).mean()), 2.0 / 2**n)
    rng, extreme = np.random.default_rng(0), 1  # the observed pattern is one of them
    for begin in range(0, _DRAWN, _SIGN_CHUNK):
        signs = rng.choice((-1.0, 1.0), (min(_SIGN_CHUNK, _DRAWN - begin), n))
        extreme += int((np.abs(signs @ shifted) >= observed).sum())
    return SignFlip(extreme / (_DRAWN + 1), 1 / (_DRAWN + 1))

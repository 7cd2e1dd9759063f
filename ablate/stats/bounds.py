"""One-sided bounds of a mean paired difference, at the end or at each look of a schedule of seeds, and as text.

As text, "at least" and "at most" stay true, and no bound reads as the margin.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Literal

from ablate.stats import special
from ablate.stats.hidden_noise import SHARE, Tails
from ablate.stats.paired import MANY, PairedDifference, as_share, bca_interval, summarise
from ablate.stats.schedule import ERROR, SeedPlan

DIGITS = 2
"""Significant digits of a bound, where these tell it from what it is compared with."""
MOST_DIGITS = 17
"""Significant digits that tell any two numbers of double precision from each other."""


def at_least(value: float, compared: float, digits: int = DIGITS) -> str:
    """A lower bound, rounded down to as many digits as show on which side of a number it lies.

    Args:
        compared: That number, the margin for most: 0.1571 beside a margin of 0.15 is `0.157`, not `0.15`.
        digits: Significant digits at the least.
    """
    return _rounded(value, compared, digits, ROUND_FLOOR)


def at_most(value: float, compared: float, digits: int = DIGITS) -> str:
    """The same of an upper bound, rounded up."""
    return _rounded(value, compared, digits, ROUND_CEILING)


def _rounded(value: float, compared: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value):
        return f"{value:g}"
    # A sum such as 0.1 + 0.2 has noise in its last digits, which no rounding away from the value may show.
    exact = Decimal(f"{value:.12g}")
    if f"{value:.12g}" == f"{compared:.12g}" and value != compared:
        exact = Decimal(value)
    if exact == 0:
        return "0"
    for number in range(digits, MOST_DIGITS):
        rounded = float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - number + 1), rounding=rounding))
        if value == compared or (value > compared and rounded > compared) or (value < compared and rounded < compared):
            break
    return f"{rounded:.{max(number, 6)}g}"


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

    def as_shares(self) -> Bounds:
        """The same of differences of logarithms as shares: 0.05 is 5 % more."""
        return Bounds(as_share(self.mean), as_share(self.low), as_share(self.high), self.n)


@dataclass(frozen=True, slots=True)
class Allowance:
    """By how much bounds are widened for what the spread between the compared seeds does not show.

    Attributes:
        low: Taken off the lower bound; infinite where there is none.
        high: Added to the upper bound; infinite likewise.
        tails: A long tail of the noise, in the orientation of the differences.
        tails_at: Number of paired seeds of a look to the tail that the study showed at that look, None if none; `tails`
            applies to all other numbers.
        why_low: What the lower bound allows for, as clauses.
        why_high: The same of the upper bound.
    """

    low: float = 0.0
    high: float = 0.0
    tails: Tails | None = None
    why_low: tuple[str, ...] = ()
    why_high: tuple[str, ...] = ()
    tails_at: Mapping[int, Tails | None] = field(default_factory=dict)

    def __add__(self, other: Allowance) -> Allowance:
        """Both together."""
        tails, tails_at = self.tails or other.tails, self.tails_at or other.tails_at
        whys = (*self.why_low, *other.why_low), (*self.why_high, *other.why_high)
        return Allowance(self.low + other.low, self.high + other.high, tails, *whys, tails_at)

    def times(self, weight: float) -> Allowance:
        """The same of weighted differences, without the tails; a weight below 0 turns it."""
        if weight < 0:
            return self.turned().times(-weight)
        return (
            Allowance(weight * self.low, weight * self.high, None, self.why_low, self.why_high)
            if weight
            else NO_ALLOWANCE
        )

    def turned(self) -> Allowance:
        """The same of the negated differences."""
        tails = self.tails.turned() if self.tails else None
        tails_at = {n: at.turned() if at else None for n, at in self.tails_at.items()}
        return Allowance(self.high, self.low, tails, self.why_high, self.why_low, tails_at)

    def of_change(self, direction: Literal["minimize", "maximize"]) -> Allowance:
        """The same of variant minus baseline, for an allowance on how much worse a variant is."""
        return self if direction == "minimize" else self.turned()

    def shifted(self, edge: float, difference: float) -> float | None:
        """What `difference` is tested against, to tell on which side of `edge` it lies.

        None if no number of seeds would tell, because bounds are never narrower than the allowance.
        """
        is_below = difference < edge
        tested = edge - self.high if is_below else edge + self.low
        return tested if is_below == (difference < tested) else None

    def tails_of(self, n: int) -> Tails | None:
        """The tail that bounds of `n` paired seeds allow for."""
        return self.tails_at.get(n, self.tails)


NO_ALLOWANCE = Allowance()


def bounds(
    differences: Sequence[float],
    schedule: SeedPlan | None,
    error: float = ERROR,
    allowance: Allowance = NO_ALLOWANCE,
) -> Iterator[Bounds]:
    """The bounds to decide by, in the order of looks; without a schedule one pair of bounds, from all differences.

    The first look whose bounds decide is the verdict, and stays it: the error rate holds over all looks together.
    Nothing comes out below two seeds, before the schedule's first look, or as long as all differences are the same.

    Args:
        differences: One for each paired seed, in the order of the seeds.
        schedule: How seeds were added; None if their number was fixed beforehand.
        error: How often each bound may be wrong.
        allowance: By how much they are widened.
    """
    if schedule is None:
        if len(differences) >= LEAST_PAIRS and not (summary := summarise(differences)).is_flat:
            yield _bounds(summary, error, allowance, bootstrap=len(differences) >= MANY)
        return
    for n in schedule.looks(len(differences)):
        level = schedule.level(n, error)
        if level > 0 and not (summary := summarise(differences[:n])).is_flat:
            yield _bounds(summary, level, allowance, bootstrap=False)  # the levels are those of t-tests


def unpaired_bounds(
    difference: PairedDifference, error: float = ERROR, allowance: Allowance = NO_ALLOWANCE
) -> Iterator[Bounds]:
    """The one pair of bounds of a difference of two means (`unpaired_difference`); none if it has no spread."""
    if difference.difference is not None and difference.standard_error and not difference.is_flat:
        half = -float(special.stdtrit(difference.degrees, error)) * difference.standard_error
        mean = difference.difference
        yield Bounds(mean, mean - half - allowance.low, mean + half + allowance.high, difference.n)


def _bounds(summary: PairedDifference, error: float, allowance: Allowance, *, bootstrap: bool) -> Bounds:
    assert summary.difference is not None
    tails = allowance.tails_of(summary.n)
    below, above = _half(summary, error, tails, "low"), _half(summary, error, tails, "high")
    low, high = summary.difference - below, summary.difference + above
    if bootstrap:
        others = bca_interval(summary.values, 1 - 2 * error)
        low, high = min(low, others[0]), max(high, others[1])
    return Bounds(summary.difference, low - allowance.low, high + allowance.high, summary.n)


def _half(summary: PairedDifference, error: float, tails: Tails | None, side: str, least_share: float = 0.0) -> float:
    assert summary.standard_error is not None
    standard_error, share = _spread(summary, tails, side)
    share = max(share, least_share)
    return -float(special.stdtrit(summary.n - 1, share * error)) * standard_error if share else math.inf


def _spread(summary: PairedDifference, tails: Tails | None, side: str) -> tuple[float, float]:
    """The standard error of one bound, and its share of the error rate; 0 where nothing bounds it."""
    assert summary.standard_error is not None
    if tails is None or not getattr(tails, side):
        return summary.standard_error, 1.0
    root = math.sqrt(summary.n)
    return tails.standard_deviation(root * summary.standard_error) / root, SHARE if tails.pooled else 0.0


def p_above(summary: PairedDifference, tested: float, allowance: Allowance = NO_ALLOWANCE) -> float:
    """P-value of the one-sided test whose rejection says that the truth lies above `tested`.

    It is below an error rate where the lower bound at that rate lies above `tested`.
    """
    if summary.difference is None or summary.standard_error is None or not math.isfinite(allowance.low):
        return 1.0
    if (tails := allowance.tails_of(summary.n)) is None:
        return summary.p_above(tested + allowance.low)
    standard_error, share = _spread(summary, tails, "low")
    distance = summary.difference - tested - allowance.low
    if not share or standard_error == 0:
        return 1.0
    return min(1.0, float(special.stdtr(summary.n - 1, -distance / standard_error)) / share)


def p_below(summary: PairedDifference, tested: float, allowance: Allowance = NO_ALLOWANCE) -> float:
    """The same for a truth below `tested`."""
    return p_above(negate(summary), -tested, allowance.turned())


def negate(summary: PairedDifference) -> PairedDifference:
    """The summary of the negated differences, but for its interval."""
    difference = None if summary.difference is None else -summary.difference
    return replace(summary, difference=difference, low=None, high=None)


def over_looks(
    paired: PairedDifference,
    schedule: SeedPlan | None,
    confidence: float = 0.95,
    allowance: Allowance = NO_ALLOWANCE,
) -> PairedDifference:
    """The same with a two-sided interval that holds over all looks, and with a long tail of the noise.

    A study that stops at the first look that decides ends with differences that lie further out than the truth; the
    interval of a fixed number of seeds would hold it too seldom. Its repeated confidence interval (Jennison and
    Turnbull 1989) does not. Before the first look nothing has been selected, and the interval stays. On the side of a
    tail an end is as the bounds of verdicts are; where too few comparisons describe the tail, it has the spread of its
    own seeds at the same share of the error rate.

    Args:
        schedule: How seeds were added; None if their number was fixed beforehand.
        allowance: Its tails apply, in the orientation of the differences; intervals leave out the rest.
    """
    if paired.standard_error is None or paired.difference is None or paired.low is None or paired.high is None:
        return paired
    tails, level = allowance.tails_of(paired.n), (1 - confidence) / 2
    if schedule is not None:
        level = schedule.level(paired.n, level)
    if not level > 0 or (schedule is None and tails is None):
        return paired
    low, high = (_half(paired, level, tails, side, SHARE) for side in ("low", "high"))
    low, high = paired.difference - low, paired.difference + high
    if schedule is None:
        low, high = min(low, paired.low), max(high, paired.high)
    return replace(paired, low=low, high=high)

"""Rounds the bounds of sentences: "at least" and "at most" stay true, and no bound reads as the margin."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

DIGITS = 2
"""Significant digits of a bound, where these tell it from what it is compared with."""
MOST_DIGITS = 17
"""Significant digits that tell any two numbers of double precision from each other."""


def at_least(value: float, compared: float, digits: int = DIGITS) -> str:
    """A lower bound, rounded down to as many digits as show on which side of a number it lies.

    Args:
        value: The bound.
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

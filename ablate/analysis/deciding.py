"""Where a difference is judged: the margin with its sign, and the bounds that the verdict rests on."""

from __future__ import annotations

import math

from ablate.stats import Bounds, Direction, Verdict


def worst_margin(margin: float, direction: Direction) -> float:
    """The difference from which on a variant is worse by more than the margin."""
    return margin if direction == "minimize" else -margin


def deciding_bounds(verdict: Verdict | None, direction: Direction) -> Bounds | None:
    """The bounds that a verdict rests on, of variant minus baseline; None if there are none.

    Infinite bounds, as of a variant with failed trials, cannot be drawn: None too.
    """
    bound = None if verdict is None else verdict.bound
    if bound is None or not math.isfinite(bound.low) or not math.isfinite(bound.high):
        return None
    return bound if direction == "minimize" else Bounds(-bound.mean, -bound.high, -bound.low, bound.n)

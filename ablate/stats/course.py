"""Does a paired difference still move at the end of training?

The movement of a seed is the least-squares slope of its difference over the last third of training, times the length of
that third: how far the difference has moved there. Its points depend on one another, and their noise is smoothed by
nothing, but each seed is one independent measurement of it. So the mean movement has a t interval over seeds, as any
paired difference has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from ablate.stats.paired import PairedDifference, summarise

CourseWord = Literal["growing", "shrinking", "crossing", "settled", "unclear"]
MOVING: tuple[CourseWord, ...] = ("growing", "shrinking", "crossing")
"""The words for a difference that still moves."""

THIRD = 1 / 3
"""The share of training at its end over which a movement is measured."""
NEGLIGIBLE = 0.1
"""The share of the margin up to which a movement is none."""


def movements(positions: Sequence[float], differences: Mapping[int, Sequence[float]]) -> PairedDifference | None:
    """How far the differences moved over the last third, over the seeds.

    Args:
        positions: Where they were measured, ascending: steps, or whatever else training spends.
        differences: Seed to difference at each position.

    Returns:
        A positive movement is one towards larger differences. None without a seed, or with fewer than two positions in
        the last third.
    """
    if not positions or not differences:
        return None
    length = THIRD * positions[-1]
    late = [place for place, x in enumerate(positions) if x >= positions[-1] - length * (1 + 1e-9)]
    if len(late) < 2:
        return None
    centre = math.fsum(positions[place] for place in late) / len(late)
    spread = math.fsum((positions[place] - centre) ** 2 for place in late)
    return summarise(
        [
            length * math.fsum((positions[place] - centre) * of[place] for place in late) / spread
            for _, of in sorted(differences.items())
        ]
    )


def course_word(movement: PairedDifference, difference: float, margin: float) -> CourseWord:
    """Whether a difference still moves at the end of training.

    By the 95 % interval of the movement over the last third: `growing`, away from zero by more than a tenth of the
    margin; `shrinking`, towards zero by as much; `crossing`, by as much, from more than a tenth of the margin on one
    side of zero to more than that on the other; `settled`, by less than the margin, and not by more than a tenth of it;
    `unclear`, none of these.

    Args:
        movement: Of the difference, with an interval.
        difference: At the end.
        margin: How large a difference matters.
    """
    if movement.low is None or movement.high is None:
        return "unclear"
    if movement.is_flat and movement.difference:
        return "unclear"  # no noise that a movement could be held against
    least = NEGLIGIBLE * margin
    if movement.difference is not None and (movement.low > least or movement.high < -least):
        before = difference - movement.difference
        if before * difference < 0 and min(abs(before), abs(difference)) > least:
            return "crossing"
        return "growing" if abs(difference) > abs(before) else "shrinking"
    return "settled" if -margin < movement.low and movement.high < margin else "unclear"

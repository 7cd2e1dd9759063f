"""Trends of paired differences: do they still move at the end of training, do they grow along a numeric axis?

The movement of a seed is the least-squares slope of its difference over the last third of training, times the length of
that third: how far the difference has moved there. Its points depend on one another, and their noise is smoothed by
nothing, but each seed is one independent measurement of it. So the mean movement has a t interval over seeds, as any
paired difference has. The slope of a gap along an axis is measured in the same way, one for each seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Literal

from ablate.stats.paired import PairedDifference, summarise
from ablate.stats.schedule import ERROR

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


Gaps = Mapping[float, Mapping[int, float]]
"""Position on the axis (above 0) to seed to gap."""


def slopes(gaps: Gaps) -> dict[int, float]:
    """Least-squares slope of the gap for each doubling of the axis, seed by seed.

    Every seed is one independent measurement of the slope, whatever the shape of the gap along the axis and however
    its points depend on one another. So the mean slope is judged as any paired difference is.

    Args:
        gaps: Position on the axis (above 0) to seed to gap. Only seeds with a gap at every position count.

    Raises:
        ValueError: There are fewer than two positions, or one is not above 0.
    """
    if len(gaps) < 2 or not all(position > 0 for position in gaps):
        raise ValueError(f"a slope needs at least two positions above 0, got {sorted(gaps)}")
    weights, seeds = slope_weights(gaps), set.intersection(*(set(at) for at in gaps.values()))
    return {seed: math.fsum(weights[position] * at[seed] for position, at in gaps.items()) for seed in sorted(seeds)}


def slope_weights(positions: Iterable[float]) -> dict[float, float]:
    """The weight of each position, above 0, in the least-squares slope for each doubling."""
    doublings = {position: math.log2(position) for position in positions}
    centre = math.fsum(doublings.values()) / len(doublings)
    spread = math.fsum((x - centre) ** 2 for x in doublings.values())
    return {position: (x - centre) / spread for position, x in doublings.items()}


def steps(gaps: Gaps) -> list[dict[int, float]]:
    """Change of the gap from each position to the next, seed by seed."""
    return [
        {seed: gaps[after][seed] - gaps[before][seed] for seed in sorted(gaps[before].keys() & gaps[after].keys())}
        for before, after in pairwise(sorted(gaps))
    ]


def bends(gaps: Gaps, error: float = ERROR) -> bool:
    """Whether the gap is shown not to change by the same amount for each doubling, so that one slope misleads.

    The changes for each doubling before and after every inner position differ by one number a seed. Their mean is held
    against 0 by a two-sided t-test, at the error rate divided by the number of inner positions (Bonferroni).
    """
    order = sorted(gaps)
    rates = [
        {seed: change / math.log2(after / before) for seed, change in by_seed.items()}
        for (before, after), by_seed in zip(pairwise(order), steps(gaps), strict=True)
    ]
    inner = list(pairwise(rates))
    for before, after in inner:
        turn = summarise([after[seed] - before[seed] for seed in sorted(before.keys() & after.keys())])
        if turn.is_flat or turn.n < 2:
            continue
        if 2 * min(turn.p_above(0.0), turn.p_below(0.0)) < error / len(inner):
            return True
    return False


def fit_non_increasing(values: Sequence[float]) -> list[tuple[int, float]]:
    """The non-increasing values with the least squared distance to these (pool adjacent violators).

    Noise reaches a target no sooner than the trend does: neighbours that rise are pooled to their mean, and that counts
    from the last of them on. Barlow et al. 1972, "Statistical Inference under Order Restrictions".

    Returns:
        For each pool the place of its last value, and its mean; ascending places, no mean above the one before.
    """
    pools: list[list[float]] = []
    means: list[float] = []
    for value in values:
        pools.append([value])
        means.append(value)
        while len(pools) > 1 and means[-1] > means[-2]:
            pools[-2:], means[-2:] = [pools[-2] + pools[-1]], []
            means.append(math.fsum(pools[-1]) / len(pools[-1]))
    ends = accumulate(map(len, pools))
    return [(end - 1, mean) for end, mean in zip(ends, means, strict=True)]

"""Does a gap grow? The slope of a paired gap along a numeric axis, one for each seed, and whether it is a line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

from ablate.stats.paired import summarise
from ablate.stats.schedule import ERROR

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
    doublings = {position: math.log2(position) for position in gaps}
    centre = math.fsum(doublings.values()) / len(doublings)
    spread = math.fsum((x - centre) ** 2 for x in doublings.values())
    seeds = set.intersection(*(set(at) for at in gaps.values()))
    return {
        seed: math.fsum((doublings[position] - centre) * at[seed] for position, at in gaps.items()) / spread
        for seed in sorted(seeds)
    }


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

"""Does a gap grow? The slope of a paired gap along a numeric axis, one slope for each seed."""

from __future__ import annotations

import math
from collections.abc import Mapping


def slopes(gaps: Mapping[float, Mapping[int, float]]) -> dict[int, float]:
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

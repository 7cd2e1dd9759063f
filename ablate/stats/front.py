"""Which points are on the Pareto front: no other is at least as good in everything and better in something."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ablate.stats.verdict import Direction


def dominators(points: Sequence[Sequence[float]], directions: Sequence[Direction]) -> list[list[int]]:
    """For each point the others that dominate it; none for a point on the front. Equal points do not dominate each
    other.

    Args:
        points: A row of finite numbers for each point, a column for each direction.
        directions: Whether a smaller or a larger number is better.
    """
    if not points:
        return []
    signs = np.array([1.0 if direction == "minimize" else -1.0 for direction in directions])
    costs = np.asarray(points, dtype=np.float64) * signs
    dominating = []
    for cost in costs:
        dominates = (costs <= cost).all(axis=1) & (costs < cost).any(axis=1)
        dominating.append([int(index) for index in np.flatnonzero(dominates)])
    return dominating

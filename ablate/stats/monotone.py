"""The falling curve nearest to a noisy one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate


def falling(values: Sequence[float]) -> list[tuple[int, float]]:
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

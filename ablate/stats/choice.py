"""What a value that was tuned by few seeds may cost: an upper bound of its regret against the best of its grid.

A variant is compared at the value that did best with a few tuning seeds. The compared seeds show nothing of that
choice: where chance picked a worse value for a variant, all of them show the loss. The bound is that of a paired
one-sided t-test, of every value against the chosen one, with the noise of the variant's own tuning trials: variants
differ in their noise, and one that is noisier than the others would be promised too small a regret by a pooled one.
Only the value that is truly best must be bounded, so the bound is the largest over the grid at the level of one test;
since any of the others may be the chosen one, it fails up to that often for each of them.

A bound that holds is nearly always far above the regret, so that a comparison then errs less than 5 times in 100. Both
together stay below that, which `benchmarks/error_rates.py` measures over regrets of all sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ablate.stats import special
from ablate.stats.schedule import ERROR

Tried = Mapping[int, float]
"""Tuning seed to the objective, of one value of the grid."""


def tuning_noise(variants: Iterable[Sequence[Tried]]) -> tuple[float, int]:
    """Standard deviation of the difference between two values at one seed, and its degrees of freedom.

    Args:
        variants: For each variant, what each value of its grid gave; only values that finished at every seed count.
    """
    squares, freedom = 0.0, 0
    for tried in variants:
        table = _table(tried)
        if table.shape[0] > 1 and table.shape[1] > 1:
            rest = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
            squares += float((rest**2).sum())
            freedom += (table.shape[0] - 1) * (table.shape[1] - 1)
    return (math.sqrt(2 * squares / freedom), freedom) if freedom else (0.0, 0)


def regret_bound(tried: Sequence[Tried], chosen: int, sd: float, freedom: int, error: float = ERROR) -> float:
    """How much worse than the best of the grid the chosen value may be: an upper bound, at least 0.

    Args:
        tried: What each value gave, oriented so that positive is worse. One that has lost seeds is no rival: it was
            refused for that.
        chosen: Place of the chosen value.
        sd: Of the difference between two values at one seed.
        freedom: Degrees of freedom of `sd`; without any, the bound is infinite where there is a rival.
        error: How often it may be wrong for each value that may be chosen.
    """
    seeds = max(map(len, tried))
    rivals = [one for place, one in enumerate(tried) if place != chosen and len(one) == seeds]
    if freedom < 1:
        return math.inf if rivals else 0.0
    half = -float(special.stdtrit(freedom, error)) * sd / math.sqrt(seeds)
    ours = math.fsum(tried[chosen].values()) / len(tried[chosen])
    return max([0.0, *(ours - math.fsum(one.values()) / seeds + half for one in rivals)])


def _table(tried: Sequence[Tried]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """A row for each value that finished at every seed, a column for each seed."""
    seeds = sorted({seed for one in tried for seed in one})
    whole = [[one[seed] for seed in seeds] for one in tried if len(one) == len(seeds)]
    return np.array(whole).reshape(len(whole), len(seeds))

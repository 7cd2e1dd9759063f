"""The BCa bootstrap interval of a mean (Efron 1987), for numbers of seeds at which resampling is informative.

Below `MANY` values the t interval covers better, also when the values are skewed; `tests/stats/test_bootstrap.py`
simulates both. scipy has this interval too, but importing `scipy.stats` takes longer than reading a study.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ablate.stats import special

MANY = 30
"""From this many seeds on a bound is the more cautious of the bootstrap's and t's, also that of an interval: t misses
skewed values, the bootstrap misses values with two long tails."""
RESAMPLES = 9_999
_CHUNK = 1_000
_SEED = 0


def bca_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Two-sided BCa interval of the mean of independent values; the same values give the same interval.

    Raises:
        ValueError: There are fewer than two values.
    """
    if len(values) < 2:
        raise ValueError(f"a bootstrap needs at least 2 values, got {len(values)}")
    array = np.asarray(values, dtype=np.float64)
    low, high = bca_quantiles(array, resampled_means(array), ((1 - confidence) / 2, (1 + confidence) / 2))
    return low, high


def resampled_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means of `RESAMPLES` resamples with replacement."""
    rng = np.random.default_rng(_SEED)
    means = [
        values[rng.integers(0, len(values), (min(_CHUNK, RESAMPLES - begin), len(values)))].mean(axis=1)
        for begin in range(0, RESAMPLES, _CHUNK)
    ]
    return np.concatenate(means)


def bca_quantiles(
    values: NDArray[np.float64], resampled: NDArray[np.float64], probabilities: tuple[float, float]
) -> tuple[float, float]:
    """Quantiles of resampled means at probabilities corrected for bias (z0) and for skew (acceleration a).

    `p -> Phi(z0 + (z0 + z_p) / (1 - a (z0 + z_p)))`, where z0 is the normal quantile of the share of resampled means
    below the mean, and a is a sixth of the skewness of the jackknife's influence values.
    """
    centred = values - values.mean()
    squares = float((centred**2).sum())
    if squares == 0:
        return float(values[0]), float(values[0])
    share = ((resampled < values.mean()).mean() + (resampled <= values.mean()).mean()) / 2
    z0 = special.ndtri(share)
    acceleration = float((centred**3).sum()) / (6 * squares**1.5)
    z = z0 + special.ndtri(np.asarray(probabilities))
    low, high = np.quantile(resampled, special.ndtr(z0 + z / (1 - acceleration * z)))
    return float(low), float(high)

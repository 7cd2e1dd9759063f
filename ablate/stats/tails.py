"""Do a few seeds end far worse than the others? Skew of the noise, pooled over the comparisons of a study.

A t-bound assumes noise without a long tail on one side. Where one seed in ten ends far worse, most samples of few seeds
hold no such seed: their spread is small, their mean flatters, and the bound is wrong several times as often as it says.
No bound of a mean repairs this from few values alone (Bahadur and Savage 1956). All comparisons of a study together
show the tail much sooner. Where they do, the bound on the side of the tail takes the larger of its own standard
deviation and the pooled one, at a fifth of the error rate; from too few comparisons to pool there is no bound there.

`benchmarks/error_rates.py` measures from how many seeds this holds 5 %, and that below them it does not: reports say
that their verdicts hold if seeds scatter symmetrically, and that so few seeds cannot show it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ablate.stats.schedule import SeedPlan

LEAST_VALUES, LEAST_ALONE = 3, 5
"""Differences of a comparison that show skew at all, and those that do where few comparisons are all that there is."""
LEAST_COMPARISONS = 4
"""From this many comparisons on the pooled standard deviation describes the tail."""
SHARE = 0.2
"""Of the error rate, for a bound on the side of the tail."""
ALPHA, ALPHA_OF_FEW = 0.1, 0.05
"""How often noise without a tail is taken for one that has it, on either side; less often where the comparisons are too
few for a bound, and the verdict is lost."""
_MOST_COMPARISONS, _DRAWS, _SEED = 30, 2_000, 0


@dataclass(frozen=True, slots=True)
class Tails:
    """A long tail of the noise of a study's differences.

    Attributes:
        skewness: Mean sample skewness of the comparisons, above 0 where the tail lies above.
        sd: Pooled standard deviation of the differences.
        comparisons: How many they are.
        low: Whether lower bounds are endangered: the tail lies below.
        high: Whether upper bounds are: it lies above.
    """

    skewness: float
    sd: float
    comparisons: int
    low: bool
    high: bool

    @property
    def pooled(self) -> bool:
        """Whether there are enough comparisons to estimate the tail by the pooled standard deviation."""
        return self.comparisons >= LEAST_COMPARISONS

    def turned(self) -> Tails:
        """The same of the negated differences."""
        return Tails(-self.skewness, self.sd, self.comparisons, self.high, self.low)

    def both(self) -> Tails:
        """The same, for differences whose tail may be on either side."""
        return Tails(self.skewness, self.sd, self.comparisons, low=True, high=True)


def tails_of(comparisons: Iterable[Sequence[float]]) -> Tails | None:
    """The tail that the paired differences of a study's comparisons show; None if they show none.

    The statistic is the mean of the sample skewness over comparisons, held against normal noise of the same numbers of
    seeds and of the same correlation between comparisons, which share the baseline's trials.

    Args:
        comparisons: The differences of each, in the order of seeds, all on the same seeds as far as they go.
    """
    rows = [np.asarray(values, dtype=np.float64) for values in comparisons if len(values) >= LEAST_VALUES]
    rows = [row for row in rows if row.std() > 1e-12 * max(1.0, float(np.abs(row).max()))]
    if len(rows) < LEAST_COMPARISONS:
        rows = [row for row in rows if len(row) >= LEAST_ALONE]
    if not rows:
        return None
    shown = rows[:_MOST_COMPARISONS]
    skewness = float(np.mean([_skewness(row) for row in shown]))
    correlation = round(_correlation(shown), 1)
    alpha = ALPHA if len(rows) >= LEAST_COMPARISONS else ALPHA_OF_FEW
    limit = _limit(tuple(len(row) for row in shown), correlation, alpha)
    if abs(skewness) <= limit:
        return None
    freedom = sum(len(row) - 1 for row in rows)
    sd = math.sqrt(math.fsum(float(((row - row.mean()) ** 2).sum()) for row in rows) / freedom)
    return Tails(skewness, sd, len(rows), low=skewness < 0, high=skewness > 0)


def tails_at_looks(
    comparisons: Iterable[tuple[Mapping[int, float], Iterable[int]]], schedule: SeedPlan
) -> dict[int, Tails | None]:
    """The tail that a study shows at each look, from what had finished by then.

    A comparison that was decided gets no further seeds, so it belongs to the looks up to its own only, and what other
    comparisons show later cannot reopen it. One that diverges belongs to the looks before.

    Args:
        comparisons: For each, seed to paired difference, and the seeds at which it diverged.
        schedule: How seeds are added.
    """
    rows: list[list[float]] = []
    for by_seed, diverged in comparisons:
        first = min(diverged, default=math.inf)
        rows.append([by_seed[seed] for seed in sorted(by_seed) if seed < first])
    looks = sorted({n for row in rows for n in schedule.looks(len(row))})
    return {n: tails_of(row[:n] for row in rows if len(row) >= n) for n in looks}


def _skewness(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sample skewness along the last axis."""
    centred = values - values.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1)
    skewness: NDArray[np.float64] = (centred**3).mean(axis=-1) / variance**1.5
    return skewness


def _correlation(rows: Sequence[NDArray[np.float64]]) -> float:
    """Mean correlation between comparisons over the seeds that all have, at least 0."""
    n = min(len(row) for row in rows)
    if len(rows) < 2:
        return 0.0
    first = np.stack([row[:n] for row in rows])
    if (first.std(axis=1) == 0).any():
        return 0.5  # what comparisons with one baseline have if all trials are alike
    correlations = np.corrcoef(first)
    return max(0.0, float((correlations.sum() - len(rows)) / (len(rows) * (len(rows) - 1))))


@functools.lru_cache(maxsize=256)
def _limit(lengths: tuple[int, ...], correlation: float, alpha: float) -> float:
    """What the statistic exceeds, on either side, for this share of normal noise."""
    rng = np.random.default_rng(_SEED)
    longest, total = max(lengths), np.zeros(_DRAWS)
    shared = rng.standard_normal((_DRAWS, longest)) * math.sqrt(correlation)
    for length in lengths:
        own = rng.standard_normal((_DRAWS, length)) * math.sqrt(1 - correlation)
        total += _skewness(shared[:, :length] + own) if correlation < 1 else _skewness(shared[:, :length])
    return float(np.quantile(np.abs(total / len(lengths)), 1 - alpha))

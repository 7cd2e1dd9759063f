"""Noise that the spread between the compared seeds does not show: long tails, tuned values, the validation data.

A long tail: do a few seeds end far worse than the others? A t-bound assumes noise without one. Where one seed in ten
ends far worse, most samples of few seeds hold no such seed: their spread is small, their mean flatters, and the bound
is wrong several times as often as it says. No bound of a mean repairs this from few values alone (Bahadur and Savage
1956). All comparisons of a study together show the tail much sooner. Where they do, the bound on the side of the tail
takes the larger of its own standard deviation and the pooled one, at a fifth of the error rate; from too few
comparisons to pool there is no bound there. A variant that barely trains has noise of another scale at all its seeds:
it is not pooled for the others, or it alone would leave them undecided; for itself all are. `benchmarks/error_rates.py`
measures from how many seeds this holds 5 %, and that below them it does not: reports say that their verdicts assume
symmetric noise, and that so few seeds cannot check it.

A tuned value: a variant is compared at the value that did best with a few tuning seeds. The compared seeds show nothing
of that choice: where chance picked a worse value for a variant, all of them show the loss. The bound of that regret is
that of a paired one-sided t-test, of every value against the chosen one, with the noise of the variant's own tuning
trials: variants differ in their noise, and one that is noisier than the others would be promised too small a regret by
a pooled one. Only the value that is truly best must be bounded, so the bound is the largest over the grid at the level
of one test; since any of the others may be the chosen one, it fails up to that often for each of them. A bound that
holds is nearly always far above the regret, so that a comparison then errs less than 5 times in 100. Both together stay
below that, which `benchmarks/error_rates.py` measures over regrets of all sizes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ablate.stats import special
from ablate.stats.schedule import ERROR, SeedPlan

LEAST_VALUES, LEAST_ALONE = 3, 5
"""Differences of a comparison that show skew at all, and those that do where few comparisons are all that there is."""
LEAST_COMPARISONS = 4
"""From this many comparisons on the pooled standard deviation describes the tail."""
SHARE = 0.2
"""Of the error rate, for a bound on the side of the tail."""
OTHER_SCALE = 2.0
"""How many times the largest pooled standard deviation that of a comparison is, by its median deviation, if it is not
pooled: more than half of its seeds scatter so, and a few far ones do not count."""
_NORMAL = 1.4826
"""Standard deviation of normal noise over its median absolute deviation."""
ALPHA, ALPHA_OF_FEW = 0.1, 0.05
"""How often noise without a tail is taken for one that has it, on either side; less often where the comparisons are too
few for a bound, and the verdict is lost."""
_MOST_COMPARISONS, _DRAWS, _SEED = 30, 2_000, 0


@dataclass(frozen=True, slots=True)
class Tails:
    """A long tail of the noise of a study's differences.

    Attributes:
        skewness: Mean sample skewness of the comparisons, above 0 where the tail lies above.
        sd: Pooled standard deviation of the differences, of the comparisons whose noise is of one scale.
        comparisons: How many there are, of any scale.
        low: Whether lower bounds are endangered: the tail lies below.
        high: Whether upper bounds are: it lies above.
        largest: The largest standard deviation among those of one scale.
        sd_of_all: Pooled over all comparisons, for one whose noise is of a larger scale.
    """

    skewness: float
    sd: float
    comparisons: int
    low: bool
    high: bool
    largest: float = math.inf
    sd_of_all: float = 0.0

    def standard_deviation(self, own: float) -> float:
        """What bounds on the side of the tail use for a comparison whose own standard deviation is this."""
        return max(own, self.sd if own <= self.largest else self.sd_of_all)

    @property
    def pooled(self) -> bool:
        """Whether there are enough comparisons to estimate the tail by the pooled standard deviation."""
        return self.comparisons >= LEAST_COMPARISONS

    def turned(self) -> Tails:
        """The same of the negated differences."""
        return replace(self, skewness=-self.skewness, low=self.high, high=self.low)

    def both(self) -> Tails:
        """The same, for differences whose tail may be on either side."""
        return replace(self, low=True, high=True)


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
    alike = _of_one_scale(rows)
    largest = max(float(row.std(ddof=1)) for row in alike)
    return Tails(
        skewness,
        _pooled_deviation(alike),
        len(rows),
        skewness < 0,
        skewness > 0,
        largest=largest,
        sd_of_all=_pooled_deviation(rows),
    )


def _pooled_deviation(rows: Sequence[NDArray[np.float64]]) -> float:
    """Standard deviation within the comparisons, of all of them together."""
    freedom = sum(len(row) - 1 for row in rows)
    return math.sqrt(math.fsum(float(((row - row.mean()) ** 2).sum()) for row in rows) / freedom)


def _of_one_scale(rows: Sequence[NDArray[np.float64]]) -> Sequence[NDArray[np.float64]]:
    """The comparisons without those of noise of another scale: at least four, all of them if none stands out."""

    def typical(row: NDArray[np.float64]) -> float:
        return _NORMAL * float(np.median(np.abs(row - np.median(row))))

    ordered = sorted(rows, key=typical)
    for count in range(LEAST_COMPARISONS, len(rows)):
        largest = max(float(row.std(ddof=1)) for row in ordered[:count])
        if typical(ordered[count]) > OTHER_SCALE * largest:
            return ordered[:count]
    return rows


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
        if table.size:
            rest = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
            squares += float((rest**2).sum())
            freedom += (table.shape[0] - 1) * (table.shape[1] - 1)
    return (math.sqrt(2 * squares / freedom), freedom) if freedom else (0.0, 0)


def regret_bound(tried: Sequence[Tried], chosen: int, sd: float, freedom: int, error: float = ERROR) -> float:
    """How much worse than the best of the grid the chosen value may be: an upper bound, at least 0.

    Args:
        tried: What each value gave, oriented so that positive is worse. One that has lost seeds is not a rival: it was
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
    return max([0.0, *(ours - math.fsum(rival.values()) / seeds + half for rival in rivals)])


def _table(tried: Sequence[Tried]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """A row for each value that finished at every seed, a column for each seed."""
    seeds = sorted({seed for one in tried for seed in one})
    whole = [[one[seed] for seed in seeds] for one in tried if len(one) == len(seeds)]
    return np.array(whole).reshape(len(whole), len(seeds))


def draw_variance(gaps: Sequence[Sequence[float]]) -> float | None:
    """Variance over draws of the mean difference over all parts and seeds; below 0 by chance where there is none.

    A two-way analysis of variance: parts are a random sample of draws, each a `parts`-th as large as the whole. Their
    mean square holds the noise of the draw and that of seeds within parts; the mean square of the residuals holds the
    latter alone.

    Args:
        gaps: Differences [S, G] of each seed over each part.

    Returns:
        None below two seeds or two parts, or where seeds have different numbers of parts.
    """
    if len({len(row) for row in gaps}) != 1:
        return None
    table = np.asarray(gaps, dtype=np.float64)
    seeds, parts = table.shape
    if seeds < 2 or parts < 2:
        return None
    of_parts = table.mean(axis=0)
    rest = table - of_parts - table.mean(axis=1, keepdims=True) + table.mean()
    between = seeds * float(of_parts.var(ddof=1))
    within = float((rest**2).sum()) / ((seeds - 1) * (parts - 1))
    return float((between - within) / (seeds * parts))

"""The power of a number of seeds at a given noise, from simulated comparisons, and the boundaries of seed schedules.

`decide` says how often the rule of `judge` is wrong, and how often it decides. Shapes: S simulated comparisons, N
paired seeds. Differences are oriented so that positive is worse.

`python -m ablate.stats.calibrate` makes `boundaries.csv`, the table behind `ablate.stats.schedule`. A group-sequential
test looks after every seed from `start` to `max` and rejects at n seeds when the one-sided t-test's p-value lies below
`k sqrt(n)`. The boundary k must make the chance of rejecting at any look `alpha` when the true difference is the tested
value. There the t statistics of all looks have one joint distribution, whatever the standard deviation, so k is the
alpha quantile of `min over looks of p_n / sqrt(n)`, found once by simulation. Normal boundaries would not do: at 3
seeds they are wrong several times over.

The shape sqrt(n) lies between Pocock's, which spends too much on the first looks to decide at the last, and O'Brien and
Fleming's, which all but forbids to stop early.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, gammaincinv, nctdtr, stdtr, stdtrit

from ablate.stats.further import POWER
from ablate.stats.paired import PairedDifference
from ablate.stats.schedule import ERROR, SeedPlan

TABLE = Path(__file__).with_name("boundaries.csv")
STARTS = range(2, 11)
LAST = 50
"""The largest `max` of the table."""
ALPHAS = (0.05, 0.025, 0.01, 0.005, 0.0025, 0.001)
"""Error rates over all looks. Those below 0.05 are for families of comparisons."""
_PATHS, _CHUNK, _SEED = 8_000_000, 20_000, 20240517
_BINS, _LEAST = 60_000, 1e-8
"""Bins of k on a logarithmic scale from `_LEAST` to 1: each 0.03 % wide."""


def running_p(differences: NDArray[np.float64], tested: float) -> NDArray[np.float64]:
    """P-values of the one-sided t-tests (truth at most `tested`) on the first 2, 3 ... N columns: [S, N] to [S, N-1].

    A row without any spread has p-value 0 or 1 (1 where its mean is the tested value).
    """
    shifted = differences - tested
    n = np.arange(1, shifted.shape[1] + 1, dtype=np.float64)
    total, squares = np.cumsum(shifted, axis=1)[:, 1:], np.cumsum(shifted**2, axis=1)[:, 1:]
    n = n[1:]
    variance = np.maximum(squares - total**2 / n, 0.0) / (n - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.nan_to_num(total / np.sqrt(n * variance), nan=-np.inf)
    return np.asarray(stdtr(n - 1, -t), dtype=np.float64)


def boundaries(paths: int, seed: int) -> dict[tuple[int, int], list[float]]:
    """(start, max) to k for each of `ALPHAS`, from this many simulated paths of seeds; rounded to the safe side."""
    rng = np.random.default_rng(seed)
    counts = {(start, last): np.zeros(_BINS, dtype=np.int64) for start in STARTS for last in range(start + 1, LAST + 1)}
    root = np.sqrt(np.arange(2, LAST + 1))
    for begin in range(0, paths, _CHUNK):
        p = running_p(rng.standard_normal((min(_CHUNK, paths - begin), LAST)), 0.0)
        scaled = np.log(np.maximum(p / root, _LEAST) / _LEAST) / -math.log(_LEAST)
        bins = np.minimum((scaled * _BINS).astype(np.int32), _BINS - 1).T.copy()  # [N-1, S]; keeps the order of k
        for start in STARTS:
            least = np.minimum.accumulate(bins[start - 2 :], axis=0)
            for last in range(start + 1, LAST + 1):
                counts[start, last] += np.bincount(least[last - start], minlength=_BINS)
    table = {}
    for looks, count in counts.items():
        below = np.cumsum(count)
        safe = [int(np.searchsorted(below, alpha * paths, side="right")) for alpha in ALPHAS]
        table[looks] = [_LEAST ** (1 - edge / _BINS) for edge in safe]
    return table


def main() -> None:
    """Write the table beside this file; takes about five minutes on one core."""
    lines = ["start,max," + ",".join(map(str, ALPHAS))]
    for (start, last), levels in boundaries(_PATHS, _SEED).items():
        lines.append(f"{start},{last}," + ",".join(f"{math.floor(level * 1e7) / 1e7:.7f}" for level in levels))
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()


@dataclass(frozen=True, slots=True)
class Decisions:
    """The verdicts on S simulated comparisons.

    Attributes:
        needed: Which of them were judged `needed`: booleans [S].
        not_needed: Which were judged `not needed` or `better` [S].
        better: Which were judged `better` [S].
        seeds: Paired seeds that each used [S].
    """

    needed: NDArray[np.bool_]
    not_needed: NDArray[np.bool_]
    better: NDArray[np.bool_]
    seeds: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rate:
    """The frequency of an outcome among simulated comparisons.

    Attributes:
        share: Of the comparisons.
        low: Lower bound of its exact (Clopper and Pearson) 95 % Monte Carlo interval.
        high: Upper bound of the same.
    """

    share: float
    low: float
    high: float


def decide(differences: NDArray[np.float64], margin: float, schedule: SeedPlan | None = None) -> Decisions:
    """Judge every row of differences [S, N]; without a schedule on all N, else at its looks up to N.

    The rule is that of `judge` below `paired.MANY` seeds.
    """
    count, last = differences.shape
    above, below = running_p(differences, margin), running_p(-differences, -margin)
    looks = np.arange(2, last + 1)
    if schedule is None:
        levels = np.where(looks == last, ERROR, 0.0)
    else:
        levels = np.array([schedule.level(int(n)) for n in looks])
    decided = (above < levels) | (below < levels)
    at = np.where(decided.any(axis=1), decided.argmax(axis=1), last - 2)
    row = np.arange(count)
    far_below = running_p(-differences, margin)  # each look stops at what it decides, so later ones add no `better`
    return Decisions(
        needed=above[row, at] < levels[at],
        not_needed=below[row, at] < levels[at],
        better=far_below[row, at] < levels[at],
        seeds=looks[at],
    )


def rate(happened: NDArray[np.bool_]) -> Rate:
    """The share of true values with its Monte Carlo interval."""
    hits, count = int(happened.sum()), len(happened)
    low = float(betaincinv(hits, count - hits + 1, 0.025)) if hits else 0.0
    high = float(betaincinv(hits + 1, count - hits, 0.975)) if hits < count else 1.0
    return Rate(hits / count, low, high)


_QUANTILES = 50
"""Of the distribution of an estimated standard deviation, over which a power is averaged."""
SIMULATED = 2_000
"""Comparisons simulated for each rate."""
ENOUGH_RESIDUALS = 100
"""From this many on the simulation draws from the study's own residuals, with their skew and their tails; below, from
the normal distribution of the same standard deviation, as the skew of a few values is mostly chance."""
_SEED = 0


@dataclass(frozen=True, slots=True)
class Noise:
    """The spread of a study's paired differences about their means.

    Attributes:
        sd: Pooled standard deviation over the comparisons, in the unit of the metric.
        least: The smallest of one comparison.
        most: The largest of one comparison.
        comparisons: How many there are with at least two paired seeds.
        freedom: Degrees of freedom of `sd`.
        most_freedom: Of `most`.
        residuals: Differences less their comparison's mean, scaled so that their variance is unbiased.
    """

    sd: float
    least: float
    most: float
    comparisons: int
    freedom: int
    most_freedom: int
    residuals: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Power:
    """The power of a number of seeds.

    Attributes:
        seeds: Paired seeds of a comparison (the most, with a schedule).
        detectable_difference: Minimum detectable difference: the distance from the margin at which a true difference
            is decided with 80 % probability, at the pooled noise.
        detectable_noisiest: The same at the noise of the noisiest variant.
        power_at_zero: Probability that a part whose removal changes nothing is judged `not needed`.
        false_needed: Share of `needed` among comparisons whose true difference is the margin: the worst case.
        false_not_needed: Share of `not needed` among the same.
        mean_seeds: Seeds used, on average, by a comparison with no true difference.
    """

    seeds: int
    detectable_difference: float
    detectable_noisiest: float
    power_at_zero: Rate
    false_needed: Rate
    false_not_needed: Rate
    mean_seeds: float


def pooled_noise(differences: Iterable[PairedDifference]) -> Noise | None:
    """The noise of a study's comparisons; None unless one of them has two paired seeds and some spread."""
    usable = [paired for paired in differences if paired.n >= 2 and paired.sd is not None]
    if not any(paired.sd for paired in usable):
        return None
    freedom = sum(paired.n - 1 for paired in usable)
    spreads = [paired.sd for paired in usable if paired.sd is not None]
    squares = math.fsum((paired.n - 1) * sd**2 for paired, sd in zip(usable, spreads, strict=True))
    residuals = [
        (value - paired.difference) * math.sqrt(paired.n / (paired.n - 1))
        for paired in usable
        for value in paired.values
        if paired.difference is not None
    ]
    noisiest = max(usable, key=lambda paired: paired.sd or 0.0)
    return Noise(
        sd=math.sqrt(squares / freedom),
        least=min(spreads),
        most=max(spreads),
        comparisons=len(usable),
        freedom=freedom,
        most_freedom=noisiest.n - 1,
        residuals=tuple(residuals),
    )


def detectable(sd: float, seeds: int, power: float = POWER, freedom: int | None = None) -> float:
    """The distance from the margin that a one-sided t-test on this many seeds decides with this probability.

    Args:
        sd: Of the paired differences.
        seeds: Paired seeds of the test.
        power: The probability. With an estimated `sd` it is the mean over studies, each with its own estimate: one that
            came out too small promises too small a distance.
        freedom: Degrees of freedom of an estimated `sd`; None if it is known.

    Raises:
        ValueError: There are fewer than two seeds.
    """
    if seeds < 2:
        raise ValueError(f"a difference shows no spread below 2 seeds, got {seeds}")
    critical = -float(stdtrit(seeds - 1, ERROR))
    estimated = np.ones(1)  # over the truth
    if freedom is not None:
        shares = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        estimated = np.sqrt(2 * gammaincinv(freedom / 2, shares) / freedom)

    def power_at(noncentrality: float) -> float:
        return float(np.mean(1 - nctdtr(seeds - 1, noncentrality * estimated, critical)))

    low, high = 0.0, 1.0
    while power_at(high) < power:
        low, high = high, 2 * high
    for _ in range(60):  # the noncentrality, by bisection
        middle = (low + high) / 2
        low, high = (middle, high) if power_at(middle) < power else (low, middle)
    return high * sd / math.sqrt(seeds)


def calibrate(noise: Noise, margin: float, seeds: Sequence[int], schedule: SeedPlan | None = None) -> tuple[Power, ...]:
    """The power of each fixed number of seeds at this noise, then that of the schedule, if there is one."""
    powers = [_power(noise, margin, count, None) for count in seeds]
    if schedule is not None:
        powers.append(_power(noise, margin, schedule.max, schedule))
    return tuple(powers)


def _power(noise: Noise, margin: float, seeds: int, schedule: SeedPlan | None) -> Power:
    drawn = _draw(noise, seeds)
    at_margin, at_none = decide(drawn + margin, margin, schedule), decide(drawn, margin, schedule)
    difference, noisiest = (
        detectable(sd, seeds, freedom=freedom)
        for sd, freedom in ((noise.sd, noise.freedom), (noise.most, noise.most_freedom))
    )
    if schedule is not None:  # a test of fixed seeds, by how much more a schedule takes at the same noise
        more = _detectable_by_simulation(drawn, schedule) / detectable(noise.sd, seeds)
        difference, noisiest = more * difference, more * noisiest
    return Power(
        seeds=seeds,
        detectable_difference=difference,
        detectable_noisiest=noisiest,
        power_at_zero=rate(at_none.not_needed),
        false_needed=rate(at_margin.needed),
        false_not_needed=rate(at_margin.not_needed),
        mean_seeds=float(at_none.seeds.mean()),
    )


def _draw(noise: Noise, seeds: int) -> NDArray[np.float64]:
    """Differences without a mean [S, N], from residuals if there are enough of them."""
    rng = np.random.default_rng(_SEED)
    if len(noise.residuals) < ENOUGH_RESIDUALS:
        return rng.normal(0.0, noise.sd, (SIMULATED, seeds))
    residuals = np.asarray(noise.residuals)
    centred = residuals - residuals.mean()
    return rng.choice(centred * (noise.sd / centred.std()), (SIMULATED, seeds))


def _detectable_by_simulation(drawn: NDArray[np.float64], schedule: SeedPlan) -> float:
    low, high = 0.0, float(drawn.std())
    while decide(drawn + high, 0.0, schedule).needed.mean() < POWER:
        low, high = high, 2 * high
    for _ in range(12):
        middle = (low + high) / 2
        decided = decide(drawn + middle, 0.0, schedule).needed.mean()
        low, high = (middle, high) if decided < POWER else (low, middle)
    return high

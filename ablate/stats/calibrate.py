"""The power of a number of seeds at a given noise: minimum detectable differences and error rates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, nctdtr, stdtrit

from ablate.stats.further import POWER
from ablate.stats.paired import PairedDifference
from ablate.stats.schedule import ERROR, SeedPlan
from ablate.stats.simulate import Rate, decide, rate

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
    usable = [paired for paired in differences if paired.n >= 2]
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

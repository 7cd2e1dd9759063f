"""How much of the spread of a study each factor explains by itself: fANOVA (Hutter, Hoos and Leyton-Brown 2014).

Optuna's evaluator fits a random forest to the variants and splits the variance of what it predicts, over all places
alike, into the share of each factor and a rest: interactions, and noise that the forest has learnt. A factor is a
switch (its settings are the places 0, 1, 2 ..., all equally likely) or a numeric axis (its logarithms, if its scale is
one).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

TREES = 64
RESAMPLES = 40
_RESAMPLED_TREES = 10
MOST_TRIALS = 2_000
"""Above this number of trials the forest is fitted to the mean of each variant."""
_LEVEL = 0.975
_SEED = 0
_ZERO = 1e-9
_FLAT = 1e-6
"""Share of the spread of single trials below which the means of the variants count as equal."""


@dataclass(frozen=True, slots=True)
class Factor:
    """What varies: a switch with this many settings, or a numeric axis between two bounds.

    Attributes:
        settings: How many; 0 for a numeric axis.
        low: Least place of a numeric axis.
        high: Greatest place of a numeric axis.
    """

    settings: int = 0
    low: float = 0.0
    high: float = 0.0

    def distribution(self) -> BaseDistribution:
        """The factor as Optuna's."""
        from optuna.distributions import FloatDistribution, IntDistribution

        if self.settings:
            return IntDistribution(0, self.settings - 1)
        return FloatDistribution(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Configuration:
    """A variant: factor to its place, and seed to value."""

    places: Mapping[str, float]
    values: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Importance:
    """The share of the variance that a factor explains by itself.

    Attributes:
        factor: Its name.
        share: Between 0 and 1; the shares of all factors sum to at most 1.
        low: Lower end of the interval, at least 0; None if no variant has two seeds, which alone show the noise.
        high: Upper end of the interval, at most 1.
    """

    factor: str
    share: float
    low: float | None
    high: float | None


def importances(configurations: Sequence[Configuration], factors: Mapping[str, Factor]) -> tuple[Importance, ...]:
    """The importance of each factor, in the order of the factors; none where all variants are equally good.

    The intervals are for the share without noise. We simulate studies whose variants differ by a lower bound of the
    observed differences, with the noise estimated from the seeds (its uncertainty included). Half the width is the
    97.5 % quantile of the error of their shares. Noise takes shares from all factors, and few seeds do not show how
    much: the usual resampling of seeds gives intervals that miss most of the time.

    Args:
        configurations: Each has a place for every factor; those without a value are left out.
        factors: Each takes at least two places among the configurations.
    """
    seeds = sorted({seed for configuration in configurations for seed in configuration.values})
    centred = _centred([one for one in configurations if one.values], seeds)
    point = _shares(centred, factors, TREES)
    if point is None:
        return ()
    margins = _margins(centred, factors, len(seeds))
    if margins is None:
        return tuple(Importance(name, share, None, None) for name, share in point.items())
    return tuple(
        Importance(name, share, max(0.0, share - margins[name]), min(1.0, share + margins[name]))
        for name, share in point.items()
    )


def _margins(centred: Sequence[Configuration], factors: Mapping[str, Factor], seeds: int) -> dict[str, float] | None:
    """Factor to half the width of its interval; None if no variant has two seeds."""
    counts = np.array([len(one.values) for one in centred])
    freedom = int(counts.sum()) - len(centred) - (seeds - 1)
    if freedom < 1:
        return None
    means = np.array([np.mean(list(one.values.values())) for one in centred])
    residuals = [value - mean for one, mean in zip(centred, means, strict=True) for value in one.values.values()]
    variance = float(np.square(residuals).sum()) / freedom
    spread = float(means.var(ddof=1))
    signal = max(0.0, spread - variance * float(np.mean(1 / counts)))
    true = means.mean() + (math.sqrt(signal / spread) if signal else 0.0) * (means - means.mean())
    rng = np.random.default_rng(_SEED)

    def shares(noise: float) -> dict[str, float]:
        made = [
            Configuration(one.places, {seed: at + noise * rng.standard_normal() for seed in one.values})
            for one, at in zip(centred, true, strict=True)
        ]
        return _shares(made, factors, _RESAMPLED_TREES) or dict.fromkeys(factors, 0.0)

    without = shares(0.0)
    noises = np.sqrt(variance * freedom / rng.chisquare(freedom, RESAMPLES))
    samples = [shares(noise) for noise in noises]
    return {
        name: float(np.quantile([abs(sample[name] - without[name]) for sample in samples], _LEVEL)) for name in factors
    }


def _centred(configurations: Sequence[Configuration], seeds: Sequence[int]) -> list[Configuration]:
    """The configurations with each seed's mean subtracted, as a seed shifts all variants alike.

    The mean is taken over the variants that have every seed; over all variants if none has.
    """
    whole = [one for one in configurations if len(one.values) == len(seeds)] or configurations
    shifts = {seed: float(np.mean([one.values[seed] for one in whole if seed in one.values])) for seed in seeds}
    return [
        Configuration(
            configuration.places, {seed: value - shifts[seed] for seed, value in configuration.values.items()}
        )
        for configuration in configurations
    ]


def _shares(
    configurations: Sequence[Configuration], factors: Mapping[str, Factor], trees: int
) -> dict[str, float] | None:
    """Factor to share of variance; None without any spread.

    The forest sees every trial, not the means: few of the samples that its trees are grown on then lack a variant. Of
    very many trials it sees the means, which takes a fraction of the time and, of so many variants, tells the same.
    """
    import optuna
    from optuna.importance import FanovaImportanceEvaluator

    distributions = {name: factor.distribution() for name, factor in factors.items()}
    trained = sum(len(one.values) for one in configurations)
    spread = float(np.ptp([value for one in configurations for value in one.values.values()]))
    if spread < _ZERO:
        return None
    trials = []
    for configuration in configurations:
        places = {name: int(place) if factors[name].settings else place for name, place in configuration.places.items()}
        values = list(configuration.values.values())
        if trained > MOST_TRIALS:
            values = [float(np.mean(values))]
        for value in values:  # in parts of the spread: below 1e-8 the forest takes a difference for none
            share = value / spread
            trials.append(optuna.trial.create_trial(params=places, distributions=distributions, value=share))
    if np.ptp([trial.value for trial in trials]) < _FLAT:  # the means alone
        return None
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study()
    finally:
        optuna.logging.set_verbosity(before)
    study.add_trials(trials)
    by_factor = FanovaImportanceEvaluator(n_trees=trees, seed=_SEED).evaluate(study)
    return {name: float(by_factor[name]) for name in factors}

"""How much of the spread of a study each factor explains by itself: fANOVA (Hutter, Hoos and Leyton-Brown 2014).

Optuna's evaluator fits a random forest to the variants and splits the variance of what it predicts, over all places
alike, into the share of each factor and a rest: interactions, and noise that the forest has learnt. A factor is a
switch (its settings are the places 0, 1, 2 ..., all equally likely) or a numeric axis (its logarithms, if its scale is
one).
"""

from __future__ import annotations

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
"""Beyond so many the forest sees the mean of each variant."""
_SEED = 0
_ZERO = 1e-9


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
        low: The 2.5 % quantile over studies whose seeds are drawn again with replacement; None below two seeds.
        high: The 97.5 % quantile of the same.
    """

    factor: str
    share: float
    low: float | None
    high: float | None


def importances(configurations: Sequence[Configuration], factors: Mapping[str, Factor]) -> tuple[Importance, ...]:
    """The importance of each factor, in the order of the factors; none where all variants are equally good.

    Args:
        configurations: Each has a place for every factor; those without a value are left out.
        factors: Each takes at least two places among the configurations.
    """
    seeds = sorted({seed for one in configurations for seed in one.values})
    centred = _centred(configurations, seeds)
    point = _shares(centred, factors, seeds, TREES)
    if point is None:
        return ()
    if len(seeds) < 2:
        return tuple(Importance(name, point[name], None, None) for name in factors)
    rng = np.random.default_rng(_SEED)
    drawn = [tuple(sorted(rng.choice(seeds, len(seeds)).tolist())) for _ in range(RESAMPLES)]
    shares_of = {again: _shares(centred, factors, again, _RESAMPLED_TREES) for again in set(drawn)}
    resampled = [shares for again in drawn if (shares := shares_of[again]) is not None]
    found = []
    for name in factors:
        low, high = np.quantile([shares[name] for shares in resampled], (0.025, 0.975))
        # The forests of the resamples have fewer trees; the interval holds the point all the same.
        found.append(Importance(name, point[name], min(float(low), point[name]), max(float(high), point[name])))
    return tuple(found)


def _centred(configurations: Sequence[Configuration], seeds: Sequence[int]) -> list[Configuration]:
    """The same without what a seed shifts alike in all: its mean over the variants that have every seed, if any do."""
    whole = [one for one in configurations if len(one.values) == len(seeds)] or configurations
    shifts = {seed: float(np.mean([one.values[seed] for one in whole if seed in one.values])) for seed in seeds}
    return [
        Configuration(one.places, {seed: value - shifts[seed] for seed, value in one.values.items()})
        for one in configurations
    ]


def _shares(
    configurations: Sequence[Configuration], factors: Mapping[str, Factor], seeds: Sequence[int], trees: int
) -> dict[str, float] | None:
    """Factor to share of variance, over trials of these seeds (some may be there twice); None without any spread.

    The forest sees every trial, not the means: few of the samples that its trees are grown on then lack a variant. Of
    very many trials it sees the means, which takes a fraction of the time and, of so many variants, tells the same.
    """
    import optuna
    from optuna.importance import FanovaImportanceEvaluator

    distributions = {name: factor.distribution() for name, factor in factors.items()}
    trials = []
    for one in configurations:
        places = {name: int(place) if factors[name].settings else place for name, place in one.places.items()}
        values = [one.values[seed] for seed in seeds if seed in one.values]
        if values and len(configurations) * len(seeds) > MOST_TRIALS:
            values = [float(np.mean(values))]
        for value in values:
            trials.append(optuna.trial.create_trial(params=places, distributions=distributions, value=value))
    if np.ptp([trial.value for trial in trials]) < _ZERO:
        return None
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study()
    finally:
        optuna.logging.set_verbosity(before)
    study.add_trials(trials)
    found = FanovaImportanceEvaluator(n_trees=trees, seed=_SEED).evaluate(study)
    return {name: float(found[name]) for name in factors}

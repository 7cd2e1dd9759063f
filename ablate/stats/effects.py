"""What each switch does on average, and what each pair does together: main effects and two-factor interactions.

The value of a trial is modelled as a mean, plus a shift of its seed (all variants with a seed share its batches, so
seeds are blocks), plus effects of the settings. Every indicator of a setting is centred on its mean over a full grid.
So a main effect `a=x` is how much the value changes from the first setting of `a` to `x`, averaged over all settings of
the other switches; and an interaction `a=x:b=y` is how much that change differs between `b=y` and the first setting of
`b`. The estimates are ordinary least squares.

What a switch does differs from seed to seed, and all trials of a seed share that: their residuals are not independent,
so the interval of ordinary least squares is too narrow by as much as half. Each effect is therefore estimated at every
seed by itself, and its interval is that of a mean over seeds (Student's t), as for any paired difference. Seeds at
which trials are missing, so that they do not show every effect by themselves, give no interval.

How much of the spread of a study each factor explains by itself is fANOVA (Hutter, Hoos and Leyton-Brown 2014).

Optuna's evaluator fits a random forest to the variants and splits the variance of what it predicts, over all places
alike, into the share of each factor and a rest: interactions, and noise that the forest has learnt. A factor is a
switch (its settings are the places 0, 1, 2 ..., all equally likely) or a numeric axis (its logarithms, if its scale is
one).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ablate.stats import special
from ablate.stats.schedule import SeedPlan

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Matrix = NDArray[np.float64]
Switches = Mapping[str, Sequence[str]]

_ZERO = 1e-9


@dataclass(frozen=True, slots=True)
class Observation:
    """The objective of one trial: a setting for every switch, and its seed."""

    settings: Mapping[str, str]
    seed: int
    value: float


@dataclass(frozen=True, slots=True)
class Term:
    """A main effect (one switch) or an interaction (two): the settings whose effect it is, by switch."""

    settings: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """`switch=setting`, joined by a colon."""
        return ":".join(f"{switch}={setting}" for switch, setting in self.settings)


@dataclass(frozen=True, slots=True)
class Effect:
    """An estimated effect, in the unit of the values.

    Attributes:
        term: What it is the effect of.
        estimate: The change of the value.
        low: Lower bound of the two-sided t interval over seeds; None where fewer than two seeds show all effects.
        high: Upper bound of the same.
        standard_error: Of the mean over seeds; None likewise.
        by_seed: Seed to the effect at it, of the seeds that show all effects.
        fall: By how much the estimate may be lower, as values may be lower than they were observed.
        rise: By how much it may be higher, for the same reason.
    """

    term: Term
    estimate: float
    low: float | None
    high: float | None
    standard_error: float | None
    by_seed: Mapping[int, float]
    fall: float = 0.0
    rise: float = 0.0


@dataclass(frozen=True, slots=True)
class Effects:
    """The effects of a study.

    Attributes:
        effects: Main effects, then interactions, in the order of the switches.
        aliased: Name of a term that these trials cannot tell from others to the names of those others, which come
            earlier in order and carry its effect; none if the trials never vary it.
        sd: Standard deviation of what the model leaves unexplained; None without degrees of freedom.
        degrees: Degrees of freedom of `sd`.
        seeds: How many seeds the intervals rest on.
    """

    effects: tuple[Effect, ...]
    aliased: Mapping[str, tuple[str, ...]]
    sd: float | None
    degrees: int
    seeds: int


def terms_of(switches: Switches, *, interactions: bool) -> list[Term]:
    """Every main effect, and every two-factor interaction if asked for."""
    single = {switch: [(switch, setting) for setting in settings[1:]] for switch, settings in switches.items()}
    terms = [Term((one,)) for settings in single.values() for one in settings]
    if interactions:
        for left, right in itertools.combinations(single.values(), 2):
            terms += [Term(pair) for pair in itertools.product(left, right)]
    return terms


def model_matrix(switches: Switches, terms: Iterable[Term], settings: Sequence[Mapping[str, str]]) -> Matrix:
    """One row for each of `settings`, one column for each term: the product of its centred indicators."""
    centred = {
        (switch, setting): np.array([row[switch] == setting for row in settings], dtype=float) - 1 / len(options)
        for switch, options in switches.items()
        for setting in options
    }
    columns = [np.prod([centred[one] for one in term.settings], axis=0) for term in terms]
    return np.stack(columns, axis=1) if columns else np.empty((len(settings), 0))


def estimate_effects(
    observations: Sequence[Observation],
    switches: Switches,
    *,
    interactions: bool = True,
    confidence: float = 0.95,
    schedule: SeedPlan | None = None,
    slack: Sequence[float] = (),
) -> Effects:
    """Estimate effects from trials that finished; runs and seeds may be missing.

    Args:
        observations: Any number of trials.
        switches: Switch to settings, the baseline's first.
        interactions: Whether two-factor interactions are in the model.
        confidence: Of the two-sided intervals.
        schedule: How seeds were added, over all looks of which intervals hold; None if their number was fixed
            beforehand.
        slack: By how much each value may be lower than observed; empty if by nothing.

    Raises:
        ValueError: There is no observation, or a value is not finite.
    """
    if not observations:
        raise ValueError("effects need at least one observation")
    values = np.array([observation.value for observation in observations])
    if not np.isfinite(values).all():
        raise ValueError("only finite values have effects")
    terms = terms_of(switches, interactions=interactions)
    seeds = sorted({observation.seed for observation in observations})
    blocks = [[1.0, *(float(observation.seed == seed) for seed in seeds[1:])] for observation in observations]
    wanted = model_matrix(switches, terms, [observation.settings for observation in observations])
    columns = np.hstack([np.array(blocks), wanted])
    kept, explained = independent_columns(columns)
    named = {index: terms[index - len(seeds)].name for index in range(len(seeds), columns.shape[1])}
    design = columns[:, kept]
    coefficients = np.linalg.lstsq(design, values)[0]
    degrees = len(values) - len(kept)
    rest = values - design @ coefficients
    sd = math.sqrt(float(rest @ rest) / degrees) if degrees else None
    shown = [index for index in kept if index in named]
    lower = np.array(slack) if slack else np.zeros(len(values))
    at_seed = _by_seed(observations, seeds, columns[:, shown], values, lower)
    level = (1 - confidence) / 2
    if schedule is not None:
        level = schedule.level(len(at_seed), level) or level  # before the first look nothing is spent
    effects = []
    for place, index in enumerate(shown):
        estimate = float(coefficients[kept.index(index)])
        over_seeds = {seed: float(found[0][place]) for seed, found in at_seed.items()}
        effect = _effect(terms[index - len(seeds)], estimate, over_seeds, level)
        if at_seed:
            fall, rise = (float(np.mean([found[side][place] for found in at_seed.values()])) for side in (1, 2))
            effect = replace(effect, fall=fall, rise=rise)
        effects.append(effect)
    aliased = {
        named[index]: tuple(named[other] for other in others if other in named)
        for index, others in explained.items()
        if index in named
    }
    return Effects(tuple(effects), aliased, sd, degrees, len(at_seed))


def independent_columns(columns: Matrix) -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """From left to right: the columns that are independent, and for each other one those that it is made of."""
    kept: list[int] = []
    explained: dict[int, tuple[int, ...]] = {}
    basis = np.empty((columns.shape[0], 0))
    for index in range(columns.shape[1]):
        column = columns[:, index]
        rest = column - basis @ (basis.T @ column)
        rest -= basis @ (basis.T @ rest)  # once more, against rounding
        length = float(np.linalg.norm(rest))
        if length > _ZERO * max(1.0, float(np.linalg.norm(column))):
            kept.append(index)
            basis = np.hstack([basis, (rest / length)[:, None]])
        else:
            made_of = np.linalg.lstsq(columns[:, kept], column)[0]
            explained[index] = tuple(k for k, share in zip(kept, made_of, strict=True) if abs(share) > _ZERO)
    return kept, explained


def _by_seed(
    observations: Sequence[Observation], seeds: Sequence[int], columns: Matrix, values: Matrix, slack: Matrix
) -> dict[int, tuple[Matrix, Matrix, Matrix]]:
    """Seed to the effects estimated from its trials alone, of the seeds that show all of them, and by how much each may
    be lower and higher where values may be lower by `slack`.
    """
    estimates = {}
    owner = np.array([observation.seed for observation in observations])
    for seed in seeds:
        here = owner == seed
        own = np.hstack([np.ones((int(here.sum()), 1)), columns[here]])
        if np.linalg.matrix_rank(own) == own.shape[1]:
            weights = np.linalg.pinv(own)[1:]
            with np.errstate(invalid="ignore"):  # a slack may be infinite
                moves = np.where(np.abs(weights) > _ZERO, weights * slack[here], 0.0)
            estimates[seed] = weights @ values[here], moves.clip(min=0).sum(axis=1), (-moves).clip(min=0).sum(axis=1)
    return estimates


def narrowing(seeds: int) -> float:
    """The share of its width to which as many seeds again narrow an interval, if their spread stays the same."""
    now, then = (float(special.stdtrit(number - 1, _LEVEL)) for number in (seeds, 2 * seeds))
    return then / now / math.sqrt(2)


def _effect(term: Term, estimate: float, by_seed: Mapping[int, float], level: float) -> Effect:
    if len(by_seed) < 2:
        return Effect(term, estimate, None, None, None, by_seed)
    error = float(np.std(list(by_seed.values()), ddof=1)) / math.sqrt(len(by_seed))
    half = -float(special.stdtrit(len(by_seed) - 1, level)) * error
    # Where trials are missing elsewhere, the mean over whole seeds is not quite the estimate from all trials.
    centre = math.fsum(by_seed.values()) / len(by_seed)
    return Effect(term, centre, centre - half, centre + half, error, by_seed)


TREES = 64
RESAMPLES = 40
_RESAMPLED_TREES = 10
MOST_TRIALS = 2_000
"""Above this number of trials the forest is fitted to the mean of each variant."""
_LEVEL = 0.975
_SEED = 0
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
    centred = _centre([one for one in configurations if one.values], seeds)
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
    true = shrunk(means, variance * float(np.mean(1 / counts)))
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


def shrunk(means: Matrix, noise: float) -> Matrix:
    """The means drawn together until their variance is that without the variance of their noise, at least 0."""
    spread = float(means.var(ddof=1))
    signal = max(0.0, spread - noise)
    return np.asarray(means.mean() + (math.sqrt(signal / spread) if signal else 0.0) * (means - means.mean()))


def _centre(configurations: Sequence[Configuration], seeds: Sequence[int]) -> list[Configuration]:
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

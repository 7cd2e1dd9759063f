"""What each switch does on average, and what each pair does together: main effects and two-factor interactions.

The value of a trial is modelled as a mean, plus a shift of its seed (all variants with a seed share its batches, so
seeds are blocks), plus effects of the settings. Every indicator of a setting is centred on its mean over a full grid.
So a main effect `a=x` is how much the value changes from the first setting of `a` to `x`, averaged over all settings of
the other switches; and an interaction `a=x:b=y` is how much that change differs between `b=y` and the first setting of
`b`. The estimates are ordinary least squares.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

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
        low: Lower bound of the two-sided t interval; None if the model left no degree of freedom for noise.
        high: Upper bound of the same.
        standard_error: None likewise.
    """

    term: Term
    estimate: float
    low: float | None
    high: float | None
    standard_error: float | None


@dataclass(frozen=True, slots=True)
class Effects:
    """The effects of a study.

    Attributes:
        effects: Main effects, then interactions, in the order of the switches.
        aliased: Name of a term that these trials cannot tell from others to the names of those others, which come
            earlier in order and carry its effect; none if the trials never vary it.
        sd: Standard deviation of what the model leaves unexplained; None without degrees of freedom.
        degrees: Degrees of freedom of `sd`.
    """

    effects: tuple[Effect, ...]
    aliased: Mapping[str, tuple[str, ...]]
    sd: float | None
    degrees: int


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
    observations: Sequence[Observation], switches: Switches, *, interactions: bool = True, confidence: float = 0.95
) -> Effects:
    """Estimate effects from trials that finished; runs and seeds may be missing.

    Args:
        observations: Any number of trials.
        switches: Switch to settings, the baseline's first.
        interactions: Whether two-factor interactions are in the model.
        confidence: Of the two-sided intervals.

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
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ design.T @ values
    degrees = len(values) - len(kept)
    rest = values - design @ coefficients
    sd = math.sqrt(float(rest @ rest) / degrees) if degrees else None
    effects = []
    for position, index in enumerate(kept):
        if index in named:
            error = None if sd is None else sd * math.sqrt(float(inverse[position, position]))
            estimate = float(coefficients[position])
            effects.append(_effect(terms[index - len(seeds)], estimate, error, degrees, confidence))
    aliased = {
        named[index]: tuple(named[other] for other in others if other in named)
        for index, others in explained.items()
        if index in named
    }
    return Effects(tuple(effects), aliased, sd, degrees)


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


def _effect(term: Term, estimate: float, error: float | None, degrees: int, confidence: float) -> Effect:
    if error is None:
        return Effect(term, estimate, None, None, None)
    half = float(stdtrit(degrees, (1 + confidence) / 2)) * error
    return Effect(term, estimate, estimate - half, estimate + half, error)

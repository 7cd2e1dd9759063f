"""Regular fractions and D-optimal subsets against brute force, and against published run counts."""

from __future__ import annotations

import itertools
from collections import Counter
from math import prod

import numpy as np
import pytest
from every_pair import every_pair

from ablate.designs.factorial import Fraction, d_optimal, log_determinant, smallest_fraction
from ablate.stats.effects import model_matrix, terms_of

EVERY = [(factors, resolution) for factors in range(2, 14) for resolution in (3, 4, 5)]

# Factors to runs: Box, Hunter and Hunter, Statistics for Experimenters, table of two-level fractions; for resolution V
# beyond it the largest binary codes of distance 5.
PUBLISHED = {
    3: {3: 4, 4: 8, 5: 8, 6: 8, 7: 8, 8: 16, 9: 16, 11: 16, 15: 16, 16: 32, 31: 32},
    4: {4: 8, 5: 16, 6: 16, 7: 16, 8: 16, 9: 32, 11: 32, 16: 32, 17: 64},
    5: {5: 16, 6: 32, 7: 64, 8: 64, 9: 128, 10: 128, 11: 128, 12: 256, 17: 256},
}


def fraction_of(factors: int, resolution: int) -> Fraction:
    fraction = smallest_fraction(factors, resolution)
    assert fraction is not None
    return fraction


def words_by_brute_force(fraction: Fraction) -> Counter[int]:
    """Lengths of the sets of factors whose product of levels (-1, 1) is the same in every run."""
    signs = [[2 * level - 1 for level in run] for run in fraction.runs]
    factors = range(len(fraction.columns))
    return Counter(
        size
        for size in range(1, len(fraction.columns) + 1)
        for word in itertools.combinations(factors, size)
        if abs(sum(prod(row[factor] for factor in word) for row in signs)) == len(signs)
    )


@pytest.mark.parametrize(("factors", "resolution"), [pair for pair in EVERY if pair[0] <= 9])
def test_defining_relation(factors: int, resolution: int) -> None:
    fraction = fraction_of(factors, resolution)
    words = words_by_brute_force(fraction)
    assert fraction.word_lengths() == dict(words)
    assert all(length >= resolution for length in words)


@pytest.mark.parametrize(("factors", "resolution"), EVERY)
def test_fractions_are_balanced_and_hold_the_baseline_once(factors: int, resolution: int) -> None:
    fraction = fraction_of(factors, resolution)
    assert fraction.runs[0] == (0,) * factors
    assert len(set(fraction.runs)) == len(fraction.runs) == 2**fraction.bits
    for level in zip(*fraction.runs, strict=True):
        assert sum(level) == len(fraction.runs) // 2
    # Of resolution R, every R - 1 factors show all their combinations equally often (Box and Hunter's projections).
    strength = min(resolution - 1, factors)
    for projected in itertools.islice(itertools.combinations(range(factors), strength), 50):
        counts = Counter(tuple(run[factor] for factor in projected) for run in fraction.runs)
        assert set(counts.values()) == {len(fraction.runs) // 2**strength}


@pytest.mark.parametrize(
    ("factors", "resolution", "runs"),
    [(factors, resolution, runs) for resolution, table in PUBLISHED.items() for factors, runs in table.items()],
)
def test_runs_are_as_few_as_published(factors: int, resolution: int, runs: int) -> None:
    assert len(fraction_of(factors, resolution).runs) == runs


def test_words_of_the_half_fraction_of_five() -> None:
    assert fraction_of(5, 5).word_lengths() == {5: 1}


@pytest.mark.parametrize(("factors", "resolution"), [(5, 3), (7, 3), (6, 4), (8, 4), (10, 5)])
def test_aliases_are_the_effects_with_equal_contrasts(factors: int, resolution: int) -> None:
    fraction = fraction_of(factors, resolution)
    names = [chr(ord("a") + factor) for factor in range(factors)]
    contrasts: dict[tuple[int, ...], list[str]] = {}
    signs = [[1 - 2 * level for level in run] for run in fraction.runs]
    for size in (1, 2):
        for factors_of in itertools.combinations(range(factors), size):
            contrast = tuple(prod(row[factor] for factor in factors_of) for row in signs)
            contrasts.setdefault(contrast, []).append(":".join(names[factor] for factor in factors_of))
    expected = {frozenset(group) for group in contrasts.values() if len(group) > 1}
    assert {frozenset(group) for group in fraction.aliases(names)} == expected
    assert bool(expected) == (resolution < 5)


def test_too_many_runs_are_none() -> None:
    assert smallest_fraction(400, 5) is None


def candidates_of(levels: tuple[int, ...], interactions: bool, keep: float, seed: int) -> np.ndarray:
    """The model matrix of a grid of which a random part is forbidden; the first run is always possible."""
    switches = {f"s{index}": [str(level) for level in range(count)] for index, count in enumerate(levels)}
    rows = [dict(zip(switches, run, strict=True)) for run in itertools.product(*switches.values())]
    possible = np.random.default_rng(seed).random(len(rows)) < keep
    possible[0] = True
    rows = [row for row, fine in zip(rows, possible, strict=True) if fine]
    effects = model_matrix(switches, terms_of(switches, interactions=interactions), rows)
    return np.hstack([np.ones((len(rows), 1)), effects])


@every_pair(
    {
        "prior": [0.0, 1.0],
        "seed": [0, 1, 2],
        "levels, interactions, keep, size": [
            ((2, 2, 2, 2), False, 1.0, 6),
            ((2, 2, 2, 2), True, 0.9, 12),
            ((3, 2, 2), False, 1.0, 7),
            ((3, 3, 2), False, 0.8, 7),
            ((2, 2, 2), True, 1.0, 7),
            ((4, 2, 2), False, 0.8, 6),
        ],
    }
)
def test_no_subset_is_better(
    levels: tuple[int, ...], interactions: bool, keep: float, size: int, seed: int, prior: float
) -> None:
    candidates = candidates_of(levels, interactions, keep, seed)
    size = min(size, len(candidates) - 1)
    precision = np.zeros(candidates.shape[1])
    precision[-2:] = prior
    chosen = d_optimal(candidates, size, precision)
    assert len(set(chosen)) == size
    assert chosen[0] == 0
    value = log_determinant(candidates[chosen], precision)
    best = max(
        log_determinant(candidates[[0, *others]], precision)
        for others in itertools.combinations(range(1, len(candidates)), size - 1)
    )
    assert value == pytest.approx(best) or value == best == -np.inf


def test_main_effects_of_seven_switches_in_eight_runs_are_orthogonal() -> None:
    """A D-optimal subset finds the Plackett-Burman plan where there is one: the information matrix is diagonal."""
    candidates = candidates_of((2,) * 7, False, 1.0, 0)
    rows = candidates[d_optimal(candidates, 8, np.zeros(8))]
    information = rows.T @ rows
    assert information == pytest.approx(np.diag(np.diag(information)))

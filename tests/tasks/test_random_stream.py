"""Random numbers by name: the same again, uniform, and subsets as they are drawn one after another."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from scipy.stats import chisquare, kstest

from ablate.tasks.sampling import Draws


def test_a_name_gives_the_same_numbers_again_and_another_name_others() -> None:
    first, again, other = (Draws(name).integers(1000, (3, 5)) for name in ("a", "a", "b"))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_numbers_are_uniform() -> None:
    draws = Draws("uniform")
    assert chisquare(np.bincount(draws.integers(7, 70_000))).pvalue > 1e-3
    numbers = draws.uniforms(70_000)
    assert kstest(numbers, "uniform").pvalue > 1e-3
    assert numbers.min() > 0
    assert numbers.max() < 1


def test_subsets_are_drawn_by_weight_without_replacement() -> None:
    weights = np.array([1.0, 2.0, 5.0])
    drawn = Draws("subsets").subsets(3, 2, 60_000, weights)
    pairs = list(permutations(range(3), 2))
    # First a with w_a / 8, then b with w_b / (8 - w_a).
    expected = [weights[a] / 8 * weights[b] / (8 - weights[a]) for a, b in pairs]
    counts = [int((drawn == pair).all(axis=1).sum()) for pair in pairs]
    assert sum(counts) == 60_000
    assert chisquare(counts, np.array(expected) * 60_000).pvalue > 1e-3

"""D-optimal subsets against every subset there is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ablate.designs.factorial import d_optimal, log_determinant
from ablate.stats.effects import model_matrix, terms_of


def candidates_of(levels: tuple[int, ...], interactions: bool, keep: float, seed: int) -> np.ndarray:
    """The model matrix of a grid of which a random part is forbidden; the first run is always possible."""
    switches = {f"s{index}": [str(level) for level in range(count)] for index, count in enumerate(levels)}
    rows = [dict(zip(switches, run, strict=True)) for run in itertools.product(*switches.values())]
    possible = np.random.default_rng(seed).random(len(rows)) < keep
    possible[0] = True
    rows = [row for row, fine in zip(rows, possible, strict=True) if fine]
    effects = model_matrix(switches, terms_of(switches, interactions=interactions), rows)
    return np.hstack([np.ones((len(rows), 1)), effects])


@pytest.mark.parametrize(
    ("levels", "interactions", "keep", "size"),
    [
        ((2, 2, 2, 2), False, 1.0, 6),
        ((2, 2, 2, 2), True, 0.9, 12),
        ((3, 2, 2), False, 1.0, 7),
        ((3, 3, 2), False, 0.8, 7),
        ((2, 2, 2), True, 1.0, 7),
        ((4, 2, 2), False, 0.8, 6),
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("prior", [0.0, 1.0])
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

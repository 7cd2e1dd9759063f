"""D-optimal subsets: the candidate runs from which a linear model is estimated best.

The criterion is the determinant of the information matrix X'X + P, where the rows of X are the chosen runs and P is a
diagonal prior precision: 0 for terms to estimate, above 0 for terms that should only not be aliased with those
(DuMouchel and Jones 1994). The search is Fedorov's exchange algorithm from several random starts: exchange a chosen run
for another while that improves the criterion. Every run is chosen at most once; seeds provide the replication.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

_RIDGE = 1e-6
_GAIN = 1e-9
_MOST_PASSES = 100


def log_determinant(rows: Matrix, precision: Matrix) -> float:
    """Logarithm of the determinant of the information matrix; minus infinity if it is singular."""
    sign, value = np.linalg.slogdet(rows.T @ rows + np.diag(precision))
    return float(value) if sign > 0 else -np.inf


def d_optimal(candidates: Matrix, size: int, precision: Matrix, *, starts: int = 10, seed: int = 0) -> list[int]:
    """Indices of the chosen candidates in ascending order. Candidate 0 is always included.

    Args:
        candidates: Model matrix of the candidate runs, [N, P].
        size: Number of runs to choose, at most N.
        precision: Prior precision of each term, [P].
        starts: Number of random starts; the best result is returned.
        seed: Random seed of the starts.
    """
    generator = np.random.default_rng(seed)
    best, best_value = list(range(size)), -np.inf
    for _ in range(starts):
        others = generator.choice(np.arange(1, len(candidates)), size - 1, replace=False)
        chosen = _exchange(candidates, [0, *map(int, others)], precision)
        value = log_determinant(candidates[chosen], precision)
        if value > best_value + _GAIN:
            best, best_value = chosen, value
    return sorted(best)


def _exchange(candidates: Matrix, chosen: list[int], precision: Matrix) -> list[int]:
    for _ in range(_MOST_PASSES):
        improved = False
        for position in range(1, len(chosen)):
            # The ridge makes a singular start invertible until exchanges have made it regular.
            information = candidates[chosen].T @ candidates[chosen] + np.diag(precision + _RIDGE)
            inverse = np.linalg.inv(information)
            old = candidates[chosen[position]]
            spread = np.einsum("np,pq,nq->n", candidates, inverse, candidates)
            shared = candidates @ (inverse @ old)
            # The determinant grows by this factor if `old` is exchanged for each candidate (Fedorov 1972).
            factor = (1 + spread) * (1 - spread[chosen[position]]) + shared**2
            factor[chosen] = 0
            new = int(np.argmax(factor))
            if factor[new] > 1 + _GAIN:
                chosen[position] = new
                improved = True
        if not improved:
            break
    return chosen

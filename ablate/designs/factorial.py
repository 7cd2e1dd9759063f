"""Few runs that show many effects: regular two-level fractions, and D-optimal subsets where no fraction fits.

A fraction of k factors in 2^q runs gives each factor a column, a non-zero number of q bits. In run r (also q bits) a
factor is at its second setting if `column & r` has an odd number of ones. The column of an interaction is the
exclusive or of its factors' columns; effects with the same column are aliased. A set of factors whose columns cancel
is a word of the defining relation; the resolution is the length of the shortest word. Run 0 has every factor at its
first setting, so every fraction contains the baseline.

Columns are chosen greedily: the next is the smallest number that is not the exclusive or of fewer than resolution - 1
chosen columns. For resolutions III and IV this gives the minimum number of runs; for resolution V it does for up to 17
factors (codes of distance 5: 5, 6, 8, 11 and 17 factors in 16 to 256 runs).

A D-optimal subset maximises the determinant of the information matrix X'X + P, where the rows of X are the chosen runs
and P is a diagonal prior precision: 0 for terms to estimate, above 0 for terms that should only not be aliased with
those (DuMouchel and Jones 1994). The search is Fedorov's exchange algorithm from several random starts: exchange a
chosen run for another while that improves the criterion. Every run is chosen at most once; seeds provide the
replication.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_MOST_BITS = 14


@dataclass(frozen=True, slots=True)
class Fraction:
    """A regular fraction of a two-level factorial.

    Attributes:
        bits: The runs are 0 ... 2^bits - 1.
    """

    columns: tuple[int, ...]
    bits: int

    @property
    def runs(self) -> list[tuple[int, ...]]:
        """For each run, the level (0 or 1) of each factor; run 0 is all zeros."""
        return [tuple((column & run).bit_count() % 2 for column in self.columns) for run in range(1 << self.bits)]

    def word_lengths(self) -> dict[int, int]:
        """Number of words of the defining relation by length; empty for a full factorial."""
        # words[x, n]: number of subsets of n factors, among those seen so far, whose columns have the exclusive or x.
        words = np.zeros((1 << self.bits, len(self.columns) + 1), dtype=np.int64)
        words[0, 0] = 1
        index = np.arange(1 << self.bits)
        for column in self.columns:
            words[:, 1:] += words[index ^ column, :-1]
        return {length: int(count) for length, count in enumerate(words[0]) if length and count}

    @property
    def resolution(self) -> int | None:
        """Length of the shortest word; None for a full factorial, which has no aliases."""
        return min(self.word_lengths(), default=None)

    def aliases(self, factors: Sequence[str]) -> list[tuple[str, ...]]:
        """Groups of aliased main effects (`a`) and two-factor interactions (`a:b`)."""
        groups: dict[int, list[str]] = {}
        for name, column in zip(factors, self.columns, strict=True):
            groups.setdefault(column, []).append(name)
        for (left, one), (right, other) in itertools.combinations(zip(factors, self.columns, strict=True), 2):
            groups.setdefault(one ^ other, []).append(f"{left}:{right}")
        return [tuple(group) for group in groups.values() if len(group) > 1]


def smallest_fraction(factors: int, resolution: int) -> Fraction | None:
    """The fraction with the fewest runs of at least this resolution; of those, one of the highest resolution.

    None if it has more than 2^14 runs.
    """
    for bits in range(1, _MOST_BITS + 1):
        best = largest_resolution(factors, bits, resolution)
        if best is not None:
            return best
    return None


def largest_resolution(factors: int, bits: int, resolution: int) -> Fraction | None:
    """The fraction of the highest resolution in 2^bits runs; None if that is below `resolution`."""
    if bits >= factors:
        return Fraction(tuple(1 << factor for factor in range(factors)), factors)
    best = None
    # A fraction that is not full has a word of at most bits + 1 factors: that many columns are always dependent.
    for wanted in range(resolution, bits + 2):
        columns = _columns(factors, bits, wanted)
        if columns is None:
            break
        best = Fraction(columns, bits)
    return best


def _columns(factors: int, bits: int, resolution: int) -> tuple[int, ...] | None:
    index = np.arange(1 << bits)
    # fewest[x]: the smallest number of chosen columns whose exclusive or is x.
    fewest = np.full(1 << bits, factors + 1)
    fewest[0] = 0
    columns: list[int] = []
    while len(columns) < factors:
        free = np.flatnonzero(fewest > resolution - 2)
        if not free.size:
            return None
        column = int(free[0])
        columns.append(column)
        fewest = np.minimum(fewest, fewest[index ^ column] + 1)
    return tuple(columns)


Matrix = NDArray[np.float64]

_RIDGE = 1e-6
_GAIN = 1e-9
_MOST_PASSES = 100
_STARTS = 10


def log_determinant(rows: Matrix, precision: Matrix) -> float:
    """Logarithm of the determinant of the information matrix; minus infinity if it is singular."""
    sign, value = np.linalg.slogdet(rows.T @ rows + np.diag(precision))
    return float(value) if sign > 0 else -np.inf


def d_optimal(candidates: Matrix, size: int, precision: Matrix) -> list[int]:
    """Indices of the best choice from several random starts, in ascending order. Candidate 0 is always included.

    Args:
        candidates: Model matrix of the candidate runs, [N, P].
        size: Number of runs to choose, at most N.
        precision: Prior precision of each term, [P].
    """
    generator = np.random.default_rng(0)
    best, best_value = list(range(size)), -np.inf
    for _ in range(_STARTS):
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

"""Regular two-level fractions: which runs, of what resolution, and which effects they cannot tell apart.

A fraction of k factors in 2^q runs gives each factor a column, a non-zero number of q bits. In run r (also q bits) a
factor is at its second setting if `column & r` has an odd number of ones. The column of an interaction is the
exclusive or of its factors' columns; effects with the same column are aliased. A set of factors whose columns cancel
is a word of the defining relation; the resolution is the length of the shortest word. Run 0 has every factor at its
first setting, so the baseline is in every fraction.

Columns are found greedily: the next is the smallest number that is no exclusive or of fewer than resolution - 1 columns
already taken. For resolutions III and IV that is the least number of runs there is; for resolution V it is for up to 17
factors (codes of distance 5: 5, 6, 8, 11 and 17 factors in 16 to 256 runs).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_MOST_BITS = 14


@dataclass(frozen=True, slots=True)
class Fraction:
    """A regular fraction of a two-level factorial.

    Attributes:
        columns: One for each factor.
        bits: The runs are 0 ... 2^bits - 1.
    """

    columns: tuple[int, ...]
    bits: int

    @property
    def runs(self) -> list[tuple[int, ...]]:
        """The level of each factor, 0 or 1, run by run; run 0 is all zeros."""
        return [tuple((column & run).bit_count() % 2 for column in self.columns) for run in range(1 << self.bits)]

    def word_lengths(self) -> dict[int, int]:
        """Length to number of words of the defining relation; empty for a full factorial."""
        # words[x, n]: subsets of n factors, among those seen so far, whose columns have the exclusive or x.
        words = np.zeros((1 << self.bits, len(self.columns) + 1), dtype=np.int64)
        words[0, 0] = 1
        index = np.arange(1 << self.bits)
        for column in self.columns:
            words[:, 1:] += words[index ^ column, :-1]
        return {length: int(count) for length, count in enumerate(words[0]) if length and count}

    @property
    def resolution(self) -> int | None:
        """Length of the shortest word; None for a full factorial, where nothing is aliased."""
        return min(self.word_lengths(), default=None)

    def aliases(self, factors: Sequence[str]) -> list[tuple[str, ...]]:
        """Groups of main effects (`a`) and two-factor interactions (`a:b`) that cannot be told apart."""
        groups: dict[int, list[str]] = {}
        for name, column in zip(factors, self.columns, strict=True):
            groups.setdefault(column, []).append(name)
        for (left, one), (right, other) in itertools.combinations(zip(factors, self.columns, strict=True), 2):
            groups.setdefault(one ^ other, []).append(f"{left}:{right}")
        return [tuple(group) for group in groups.values() if len(group) > 1]


def smallest_fraction(factors: int, resolution: int) -> Fraction | None:
    """The fraction of at least this resolution with the fewest runs; of those, one of the highest resolution.

    None if it has more than 2^14 runs.
    """
    for bits in range(1, _MOST_BITS + 1):
        best = largest_resolution(factors, bits, resolution)
        if best is not None:
            return best
    return None


def largest_resolution(factors: int, bits: int, resolution: int) -> Fraction | None:
    """The fraction of the highest resolution in 2^bits runs; None if there is none of at least `resolution`."""
    if bits >= factors:
        return Fraction(tuple(1 << factor for factor in range(factors)), factors)
    best = None
    # A fraction that is not full has a word of at most bits + 1 factors: so many columns always depend.
    for wanted in range(resolution, bits + 2):
        columns = _columns(factors, bits, wanted)
        if columns is None:
            break
        best = Fraction(columns, bits)
    return best


def _columns(factors: int, bits: int, resolution: int) -> tuple[int, ...] | None:
    index = np.arange(1 << bits)
    # fewest[x]: the fewest columns taken so far whose exclusive or is x.
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

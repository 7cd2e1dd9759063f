"""`builtin:listops`: nested list operations by the generator of Long Range Arena (arXiv:2011.04006, `data/listops.py`).

A tree grows from its root at depth 1. A node above depth 10 is an operator with probability 0.25, each of MIN, MAX, MED
(median, rounded down) and SM (sum modulo 10) as likely, with 2 to 10 children; all other nodes are digits. A tree is
kept if its length in tokens (one for a digit, two for an operator: opener and closer) lies within bounds, and once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablate.tasks.base import Say
from ablate.tasks.random_stream import Draws
from ablate.tasks.sources import BadRows, Row, Source, picked

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
CLOSE = "]"
WORDS = (*OPERATORS, CLOSE, *"0123456789")
"""Token to its id, counted from 0."""
DIGIT = WORDS.index("0")

OPERATOR_SHARE, FEWEST, MOST, DEEPEST = 0.25, 2, 10, 10
LENGTHS = (500, 2000)
"""A tree is longer than the first and shorter than the second."""
TRAIN_ROWS, VALIDATION_ROWS = 96_000, 2_000
_TREES_AT_ONCE = 4096


class Tree(NamedTuple):
    """An expression as token ids (see `WORDS`), and its value."""

    tokens: NDArray[np.uint8]
    value: int


@dataclass(slots=True)
class _Level:
    """The nodes of one depth, siblings side by side, in the order of their parents."""

    operator: NDArray[np.int64]
    """0 to 3, or -1 for a digit."""
    digit: NDArray[np.int64]
    first_child: NDArray[np.int64]
    """Of the operators: where their children start in the next level."""
    parent: NDArray[np.int64]
    """Of every node but a root: its parent, counted among the operators of the level above."""


class ListOps(Source):
    """Nested list operations: 2,000 expressions to validate on and 96,000 to train on.

    The columns are `Source` and `Target`, as in published files. The parentheses of those files, which every reader
    strips, are left out.
    """

    kind: Literal["builtin:listops"] = "builtin:listops"
    columns = ("Source", "Target")

    def rows(self, columns: Sequence[str], bad_rows: BadRows, say: Say) -> Iterator[Row]:
        """The rows, those to validate on first."""
        for number, tree in enumerate(islice(trees(*LENGTHS), VALIDATION_ROWS + TRAIN_ROWS)):
            values = {"Source": expression(tree.tokens), "Target": str(tree.value)}
            split = "validation" if number < VALIDATION_ROWS else "train"
            yield Row(f"{self.kind}#{number}", picked(columns, values, self.kind), split)


def expression(tokens: NDArray[np.uint8]) -> str:
    """Token ids as text."""
    return " ".join(WORDS[token] for token in tokens.tolist())


def trees(shortest: int, longest: int) -> Iterator[Tree]:
    """Different trees with shortest < length < longest, without end and always the same."""
    seen: set[bytes] = set()
    batch = 0
    while True:
        for tree in grown(Draws(f"listops/{batch}"), _TREES_AT_ONCE, shortest, longest):
            key = tree.tokens.tobytes()
            if key not in seen:
                seen.add(key)
                yield tree
        batch += 1


def grown(draws: Draws, count: int, shortest: int, longest: int) -> list[Tree]:
    """Those of `count` random trees whose length lies within the bounds."""
    levels = _grow(draws, count)
    lengths, values = _measure(levels)
    kept = (lengths[0] > shortest) & (lengths[0] < longest)
    ends = np.cumsum(np.where(kept, lengths[0], 0))
    tokens = _written(levels, lengths, np.where(kept, ends - lengths[0], -1), int(ends[-1]))
    pieces = np.split(tokens, ends[kept][:-1]) if kept.any() else []
    return [Tree(piece, value) for piece, value in zip(pieces, values[kept].tolist(), strict=True)]


def _grow(draws: Draws, count: int) -> list[_Level]:
    levels: list[_Level] = []
    parent = np.zeros(count, dtype=np.int64)
    for depth in range(1, DEEPEST + 1):
        size = parent.size
        is_operator = draws.uniforms(size) <= OPERATOR_SHARE if depth < DEEPEST else np.zeros(size, dtype=bool)
        operators = int(is_operator.sum())
        operator = np.full(size, -1, dtype=np.int64)
        operator[is_operator] = draws.integers(len(OPERATORS), operators)
        children = FEWEST + draws.integers(MOST - FEWEST + 1, operators)
        levels.append(_Level(operator, draws.integers(10, size), np.cumsum(children) - children, parent))
        parent = np.repeat(np.arange(operators), children)
        if not operators:
            break
    return levels


def _measure(levels: list[_Level]) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
    """The length of every node's expression, by level, and the values of the roots; from the leaves up."""
    lengths: list[NDArray[np.int64]] = []
    below_lengths = below_values = np.zeros(0, dtype=np.int64)
    for level in reversed(levels):
        is_operator = level.operator >= 0
        length, value = np.ones(level.operator.size, dtype=np.int64), level.digit.copy()
        if is_operator.any():
            length[is_operator] = 2 + np.add.reduceat(below_lengths, level.first_child)
            value[is_operator] = _applied(level.operator[is_operator], level.first_child, below_values)
        lengths.insert(0, length)
        below_lengths, below_values = length, value
    return lengths, below_values


def _applied(operator: NDArray[np.int64], first: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The value of each operator over its children."""
    counts = np.diff(np.append(first, values.size))
    owner = np.repeat(np.arange(first.size), counts)
    ordered = np.sort(owner * 10 + values) - owner * 10  # owners ascend already, so each one's values are sorted
    median = (ordered[first + (counts - 1) // 2] + ordered[first + counts // 2]) // 2
    results = [ordered[first], ordered[first + counts - 1], median, np.add.reduceat(values, first) % 10]
    return np.choose(operator, results)


def _written(
    levels: list[_Level], lengths: list[NDArray[np.int64]], starts: NDArray[np.int64], total: int
) -> NDArray[np.uint8]:
    """The tokens of the trees, one after another; a tree that starts at -1 is left out. From the roots down."""
    tokens = np.full(total, WORDS.index(CLOSE), dtype=np.uint8)
    for depth, level in enumerate(levels):
        if depth > 0:
            before = np.cumsum(lengths[depth]) - lengths[depth]
            first = levels[depth - 1].first_child[level.parent]
            above = starts[levels[depth - 1].operator >= 0][level.parent]
            starts = np.where(above < 0, -1, above + 1 + before - before[first])
        kept = starts >= 0
        tokens[starts[kept]] = np.where(level.operator < 0, DIGIT + level.digit, level.operator)[kept]
    return tokens

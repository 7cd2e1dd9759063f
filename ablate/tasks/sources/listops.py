"""`builtin:listops`: nested list operations, generated as in Long Range Arena (arXiv:2011.04006, `data/listops.py`).

A tree is grown from its root at depth 1. A node at a depth below 10 is an operator with probability 0.25: one of MIN,
MAX, MED (median, rounded down) and SM (sum modulo 10) with equal probability, with 2 to 10 children. All other nodes
are digits. A digit has one token; an operator has two, for opening and closing. Trees whose length is out of bounds,
and duplicates, are discarded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablate.spec.task import Say
from ablate.tasks.sampling import Draws
from ablate.tasks.sources import BadRows, Row, Source, pick_columns

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
CLOSE = "]"
WORDS = (*OPERATORS, CLOSE, *"0123456789")
"""The tokens; the id of a token is its index."""
DIGIT = WORDS.index("0")

OPERATOR_SHARE, FEWEST, MOST, DEEPEST = 0.25, 2, 10, 10
LENGTHS = (500, 2000)
"""Exclusive bounds of the length of a tree."""
TRAIN_ROWS, VALIDATION_ROWS = 96_000, 2_000
_TREES_AT_ONCE = 4096


class Tree(NamedTuple):
    """An expression as token ids (see `WORDS`), and its value."""

    tokens: NDArray[np.uint8]
    value: int


@dataclass(slots=True)
class _Level:
    """The nodes of one depth in the order of their parents; siblings are adjacent."""

    operator: NDArray[np.int64]
    """0 to 3, or -1 for a digit."""
    digit: NDArray[np.int64]
    first_child: NDArray[np.int64]
    """Index in the next level of the first child of each operator."""
    parent: NDArray[np.int64]
    """Index of the parent of each node among the operators of the level above; unused for roots."""


class ListOps(Source):
    """Nested list operations: 2,000 expressions for validation and 96,000 for training.

    The columns are `Source` and `Target`, as in the published files, but without the parentheses, which all readers of
    those files strip.
    """

    kind: Literal["builtin:listops"] = "builtin:listops"
    columns = ("Source", "Target")

    def rows(self, columns: Sequence[str], bad_rows: BadRows, say: Say) -> Iterator[Row]:
        """The rows; validation rows come first."""
        for number, tree in enumerate(islice(trees(*LENGTHS), VALIDATION_ROWS + TRAIN_ROWS)):
            values = {"Source": expression(tree.tokens), "Target": str(tree.value)}
            split = "validation" if number < VALIDATION_ROWS else "train"
            yield Row(f"{self.kind}#{number}", pick_columns(columns, values, self.kind), split)


def expression(tokens: NDArray[np.uint8]) -> str:
    """Token ids as text."""
    return " ".join(WORDS[token] for token in tokens.tolist())


def trees(shortest: int, longest: int) -> Iterator[Tree]:
    """An infinite, deterministic sequence of distinct trees with shortest < length < longest."""
    seen: set[bytes] = set()
    batch = 0
    while True:
        for tree in grow_trees(Draws(f"listops/{batch}"), _TREES_AT_ONCE, shortest, longest):
            key = tree.tokens.tobytes()
            if key not in seen:
                seen.add(key)
                yield tree
        batch += 1


def grow_trees(draws: Draws, count: int, shortest: int, longest: int) -> list[Tree]:
    """Grow `count` random trees and return those with shortest < length < longest."""
    levels = _grow(draws, count)
    lengths, values = _measure(levels)
    kept = (lengths[0] > shortest) & (lengths[0] < longest)
    ends = np.cumsum(np.where(kept, lengths[0], 0))
    tokens = _write(levels, lengths, np.where(kept, ends - lengths[0], -1), int(ends[-1]))
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
    """Length of the expression of each node, by level, and the values of the roots, computed bottom-up."""
    lengths: list[NDArray[np.int64]] = []
    below_lengths = below_values = np.zeros(0, dtype=np.int64)
    for level in reversed(levels):
        is_operator = level.operator >= 0
        length, value = np.ones(level.operator.size, dtype=np.int64), level.digit.copy()
        if is_operator.any():
            length[is_operator] = 2 + np.add.reduceat(below_lengths, level.first_child)
            value[is_operator] = _apply(level.operator[is_operator], level.first_child, below_values)
        lengths.insert(0, length)
        below_lengths, below_values = length, value
    return lengths, below_values


def _apply(operator: NDArray[np.int64], first: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The value of each operator applied to its children."""
    counts = np.diff(np.append(first, values.size))
    owner = np.repeat(np.arange(first.size), counts)
    ordered = np.sort(owner * 10 + values) - owner * 10  # owners are ascending, so this sorts within each owner
    median = (ordered[first + (counts - 1) // 2] + ordered[first + counts // 2]) // 2
    results = [ordered[first], ordered[first + counts - 1], median, np.add.reduceat(values, first) % 10]
    return np.choose(operator, results)


def _write(
    levels: list[_Level], lengths: list[NDArray[np.int64]], starts: NDArray[np.int64], total: int
) -> NDArray[np.uint8]:
    """Concatenated tokens of the trees, written top-down; trees that start at -1 are omitted."""
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


_IDS = {word: index for index, word in enumerate(WORDS)}


def parse_expression(values: Sequence[str], where: str, bad_rows: BadRows) -> Tree | None:
    """The tree of a row; None if the row is bad and bad rows are skipped."""
    words = values[0].replace("(", " ").replace(")", " ").split()
    unknown = next((word for word in words if word not in _IDS), None)
    if unknown is not None:
        bad_rows.add(where, f"`{unknown}` is not one of the tokens {' '.join(WORDS)}")
        return None
    value = evaluate(words)
    if value is None:
        bad_rows.add(where, "the brackets of this expression do not match")
    elif values[1].strip() != str(value):
        bad_rows.add(where, f"the value of this expression is {value}, and its label is {values[1].strip()!r}")
    else:
        return Tree(np.array([_IDS[word] for word in words], dtype=np.uint8), value)
    return None


def evaluate(words: Sequence[str]) -> int | None:
    """The value of an expression; None if it is malformed."""
    opened: list[str] = []
    stack: list[list[int]] = [[]]
    for word in words:
        if word in OPERATORS:
            opened.append(word)
            stack.append([])
        elif word != CLOSE:
            stack[-1].append(_IDS[word] - DIGIT)
        elif len(stack) == 1 or not stack[-1]:
            return None
        else:
            arguments = sorted(stack.pop())
            middle = (arguments[(len(arguments) - 1) // 2] + arguments[len(arguments) // 2]) // 2
            results = (arguments[0], arguments[-1], middle, sum(arguments) % 10)
            stack[-1].append(results[OPERATORS.index(opened.pop())])
    return stack[0][0] if len(stack) == 1 and len(stack[0]) == 1 else None

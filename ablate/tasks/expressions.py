"""Parse, validate and evaluate ListOps expressions from files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ablate.tasks.sources import BadRows
from ablate.tasks.sources.listops import CLOSE, DIGIT, OPERATORS, WORDS, Tree

_IDS = {word: index for index, word in enumerate(WORDS)}


def parsed(values: Sequence[str], where: str, bad_rows: BadRows) -> Tree | None:
    """The tree of a row; None if the row is bad and bad rows are skipped."""
    words = values[0].replace("(", " ").replace(")", " ").split()
    unknown = next((word for word in words if word not in _IDS), None)
    if unknown is not None:
        bad_rows.add(where, f"`{unknown}` is not one of the tokens {' '.join(WORDS)}")
        return None
    value = evaluated(words)
    if value is None:
        bad_rows.add(where, "the brackets of this expression do not match")
    elif values[1].strip() != str(value):
        bad_rows.add(where, f"the value of this expression is {value}, and its label is {values[1].strip()!r}")
    else:
        return Tree(np.array([_IDS[word] for word in words], dtype=np.uint8), value)
    return None


def evaluated(words: Sequence[str]) -> int | None:
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

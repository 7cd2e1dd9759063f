"""Widths of columns of words in tables, and heights of rows whose words take several lines."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd

LETTER, PADDING = 6.4, 24
"""Pixels of a letter, and beside the words of a cell."""
_LINE, _AROUND, _LEAST = 18, 11, 65
"""Pixels of a line, and above and below all lines of a cell; Streamlit wraps words only in rows higher than 64."""


def fitting(table: pd.DataFrame, name: str, most: int = 10_000) -> int:
    """The width in pixels of a column that cuts none of its words, or `most` if that is less."""
    return min(most, math.ceil(PADDING + LETTER * max(map(len, [name, *table[name].dropna()]))))


def wrapping(table: pd.DataFrame, widths: Mapping[str, int]) -> int | None:
    """The height in pixels of rows that show all words of these columns; None if each cell needs one line."""
    lines = max(
        (math.ceil(LETTER * len(words) / (width - PADDING)) for name, width in widths.items()
         for words in table[name].dropna()),
        default=1,
    )  # fmt: skip
    return max(_LEAST, _LINE * lines + _AROUND) if lines > 1 else None

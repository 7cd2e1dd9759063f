"""Widths of text columns in tables, and heights of rows whose text is wrapped."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd

LETTER, PADDING = 6.4, 24
"""Width of a letter and horizontal padding of a cell, in pixels."""
_LINE, _AROUND, _LEAST = 18, 11, 65
"""Height of a line, vertical padding of a cell and least height of a row with wrapped text, in pixels; Streamlit wraps
text only in rows higher than 64."""


def fitting(table: pd.DataFrame, name: str, most: int = 10_000) -> int:
    """The width in pixels at which a column truncates no text, `most` at most."""
    return min(most, math.ceil(PADDING + LETTER * max(map(len, [name, *table[name].dropna()]))))


def wrapping(table: pd.DataFrame, widths: Mapping[str, int]) -> int | None:
    """The row height in pixels that shows all text of these columns; None if each cell fits in one line."""
    longest = {name: max(map(len, table[name].dropna()), default=0) for name in widths}
    lines = max((math.ceil(LETTER * longest[name] / (width - PADDING)) for name, width in widths.items()), default=1)
    return max(_LEAST, _LINE * lines + _AROUND) if lines > 1 else None

"""Parallel coordinates for print: an axis for each switch and quantity, a line through them for each variant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ablate.render.figures.style import STYLE, WIDTH, wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Column = Sequence[str | float | None]
"""What the variants have on an axis: words, or numbers."""
PALEST = 0.85
"""The place of the highest value on the colour scale; higher places are too pale for paper."""


def draw_parallel(columns: Mapping[str, Column], coloured: str) -> Figure:
    """Draw the axes side by side.

    Args:
        columns: Name of an axis to a value for each variant; words are in order of first occurrence.
        coloured: The axis, of numbers, whose values colour the lines; a line that has none is dotted, in grey, and
            does not reach this axis.
    """
    import matplotlib as mpl
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
        axes = figure.add_subplot()
        places = [_places(column) for column in columns.values()]
        known = [float(value) for value in columns[coloured] if isinstance(value, (int, float)) and value == value]
        scale = Normalize(min(known, default=0.0), max(known, default=1.0))
        for number, value in enumerate(columns[coloured]):
            line = [place[number] for place in places]
            look: dict[str, Any] = {"color": "0.5", "linestyle": ":"}
            if isinstance(value, (int, float)) and value == value:
                look = {"color": mpl.colormaps["cividis"](PALEST * scale(value))}
            axes.plot(
                range(len(line)), [math.nan if one is None else one for one in line], linewidth=0.9, alpha=0.8, **look
            )
        for place, column in enumerate(columns.values()):
            axes.axvline(place, color="0.4", linewidth=0.6)
            for height, said in _ticks(column):
                axes.annotate(said, (place, height), (3, 0), textcoords="offset points", fontsize=6, va="center",
                              bbox={"boxstyle": "square,pad=0.1", "color": "white", "alpha": 0.8})  # fmt: skip
        axes.set_xticks(range(len(columns)), [wrapped(name, 14) for name in columns])
        axes.set_yticks([])
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        axes.set_xlim(-0.1, len(columns) - 0.5)
    return figure


def _numbers(column: Column) -> list[float]:
    return [float(value) for value in column if isinstance(value, (int, float)) and value == value]


def _words(column: Column) -> list[str]:
    return list(dict.fromkeys(str(value) for value in column if isinstance(value, str)))


def _places(column: Column) -> list[float | None]:
    """The place of each value between 0 and 1; None for a missing value."""
    if words := _words(column):
        room = max(1, len(words) - 1)
        return [words.index(value) / room if isinstance(value, str) else None for value in column]
    numbers = _numbers(column)
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    width = (high - low) or 1.0
    return [(float(v) - low) / width if isinstance(v, (int, float)) and v == v else None for v in column]


def _ticks(column: Column) -> list[tuple[float, str]]:
    if words := _words(column):
        return [(place / max(1, len(words) - 1), wrapped(word, 16)) for place, word in enumerate(words)]
    numbers = _numbers(column)
    if not numbers:
        return []
    low, high = min(numbers), max(numbers)
    return [(place, f"{low + place * (high - low):.4g}") for place in ((0.0, 0.5, 1.0) if high > low else (0.0,))]

"""One colour means one variant on every page: by its place in the study's design, with a dash and a mark beside it.

The colours are Okabe and Ito's, told apart by colour-blind people, each in a tone for light and one for dark pages.
"""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from ablate.analysis.rows import SELECTED
from ablate.store import StudyRecord

_LIGHT = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a6a00")
_DARK = ("#4aa8e0", "#f0803c", "#2fc79b", "#dd9abf", "#f0b429", "#8fd0f5", "#d9c95a")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_MARKS = ("circle", "square", "diamond", "triangle-up", "x", "star", "triangle-down", "pentagon", "hexagon")
_BASELINE = {False: "#1b2430", True: "#e8edf3"}
_VERDICTS = {
    "needed": (("#d55e00", "#f0803c"), "square"),
    "not needed": (("#009e73", "#2fc79b"), "circle"),
    "undecided": (("#b37700", "#f0b429"), "diamond"),
    "diverged": (("#b0528a", "#dd9abf"), "x"),
    SELECTED: (("#7a7a7a", "#9a9a9a"), "triangle-down"),
}


@dataclass(frozen=True, slots=True)
class Look:
    """How something is drawn: colour as #rrggbb, Plotly's name of a dash and of a mark."""

    colour: str
    dash: str
    mark: str


def dark() -> bool:
    """Whether the page is dark."""
    return bool(st.context.theme.type == "dark")


def variant_looks(record: StudyRecord) -> dict[str, Look]:
    """Variant name to its look; the baseline's is black, or white on a dark page."""
    others = [variant.name for variant in record.variants if variant.name != record.baseline]
    looks = {record.baseline: Look(_BASELINE[dark()], "solid", "circle")}
    return looks | {name: look(index) for index, name in enumerate(others)}


def on_paper(colour: str) -> str:
    """The tone for light pages of a colour of a look."""
    return dict(zip((*_DARK, _BASELINE[True]), (*_LIGHT, _BASELINE[False]), strict=True)).get(colour, colour)


def look(index: int) -> Look:
    """The look of the thing with this number: seven colours, then the same with another dash; the mark says it too."""
    colours = _DARK if dark() else _LIGHT
    again, colour = divmod(index, len(colours))
    return Look(colours[colour], _DASHES[again % len(_DASHES)], _MARKS[(index + 1) % len(_MARKS)])


def verdict_look(word: str) -> Look:
    """The look of a verdict or of its replacement."""
    colours, mark = _VERDICTS[word]
    return Look(colours[dark()], "solid", mark)


def pale(colour: str, share: float = 0.18) -> str:
    """The colour with this opacity."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share})"

"""One colour means one variant on every page, chosen by its place in the study's design, with a dash and a mark.

The colours are near those of Okabe and Ito, each in a tone for light and one for dark pages. Their contrast to the page
is at least 4.5:1, and colour-blind people can distinguish them; `tests/dashboard/test_colours.py` measures both.
"""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from ablate.analysis.rows import SELECTED
from ablate.stats.verdict import removal_word
from ablate.store import StudyRecord

_LIGHT = ("#3f4ea4", "#94480e", "#257a62", "#9d5aa7", "#af6000", "#0e73e3", "#533d00")
_DARK = ("#4791cb", "#ea7c33", "#0ebe81", "#f890b8", "#f2c342", "#a7d8ff", "#b8a2fd")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_MARKS = ("circle", "square", "diamond", "triangle-up", "x", "star", "triangle-down", "pentagon", "hexagon")
_BASELINE = {False: "#1b2430", True: "#e8edf3"}
_VERDICTS = {
    "better": (("#0b2acb", "#7acfff"), "triangle-up"),
    "not needed": (("#007a8c", "#0ebe81"), "circle"),
    "needed": (("#8f2c00", "#ea7c33"), "square"),
    "undecided": (("#8a6d00", "#f2c342"), "diamond"),
    "diverged": (("#7a2f8f", "#d07ae0"), "x"),
    SELECTED: (("#3c4148", "#7d8590"), "triangle-down"),
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
    """The look with this number: seven colours, then the same with another dash; marks differ too."""
    colours = _DARK if dark() else _LIGHT
    again, colour = divmod(index, len(colours))
    return Look(colours[colour], _DASHES[again % len(_DASHES)], _MARKS[(index + 1) % len(_MARKS)])


def verdict_look(word: str) -> Look:
    """The look of a verdict or of its replacement."""
    colours, mark = _VERDICTS[removal_word(word)]
    return Look(colours[dark()], "solid", mark)


def pale(colour: str, share: float = 0.18) -> str:
    """The colour with this opacity."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share})"

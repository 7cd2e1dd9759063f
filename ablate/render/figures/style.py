"""How figures look: for print, in Okabe and Ito's colours, with shapes that say the same as colours."""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any

from ablate.analysis.rows import SELECTED
from ablate.stats.verdict import removal_word

BLACK, GREY, ORANGE, BLUE, GREEN, VERMILLION, PURPLE = (
    "#000000", "#767676", "#E69F00", "#0072B2", "#009E73", "#D55E00", "#CC79A7",
)  # fmt: skip
LOOKS = {
    "better": (BLUE, "^"),
    "not needed": (GREEN, "o"),
    "needed": (VERMILLION, "s"),
    "undecided": (ORANGE, "D"),
    "diverged": (PURPLE, "X"),
    SELECTED: (BLACK, "v"),
}
"""Verdict, or what stands in its place, to colour and marker; `worse` and `not worse` look as words on removals do."""

STYLE: dict[Any, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "savefig.dpi": 200,
    "svg.hashsalt": "ablate",
    "pdf.fonttype": 42,
    "axes.formatter.useoffset": False,
    "text.parse_math": False,  # a `$` in a name is a dollar
}
WIDTH = 7.0
"""Inches: the text width of a page."""


def look_of(word: str) -> tuple[str, str]:
    """Colour and marker of a verdict or of what stands in its place."""
    return LOOKS[removal_word(word)]


def legend_of(words: Set[str]) -> list[tuple[str, str, str]]:
    """Label, colour and marker for each look that these words have."""
    alike = {kept: [word for word in sorted(words) if removal_word(word) == kept] for kept in LOOKS}
    return [(" or ".join(alike[kept]), *look) for kept, look in LOOKS.items() if alike[kept]]


def verbatim(text: str) -> str:
    """Text of a user's on one line, without control codes."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in " ".join(text.split()))


def wrapped(text: str, width: int) -> str:
    """The text in lines of at most this many characters, broken after a comma, a colon or `@`.

    A part that is longer than a line is broken after its equals signs too.
    """
    lines = [""]
    for part in re.split(r"(?<=[,:@])", verbatim(text)):
        for piece in re.split(r"(?<==)", part) if len(part) > width else [part]:
            if lines[-1] and len(lines[-1]) + len(piece) > width:
                lines.append("")
            lines[-1] += piece
    return "\n".join(lines)

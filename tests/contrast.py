"""Contrast by WCAG 2.2, of two colours and of what a figure draws with its ground."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import numpy as np

WORDS, LINES = 4.5, 3.0
"""The least contrast of text, and of marks and thin lines."""
_BEHIND = re.compile(r"background|grid|mark-area|gradient")


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def over(colour: str, ground: str, opacity: float = 1.0) -> str:
    """A colour as #rrggbb or #rrggbbaa on a ground."""
    if colour == "none":
        return ground
    share = opacity * int(colour[7:] or "ff", 16) / 255
    pairs = [(int(colour[at : at + 2], 16), int(ground[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(share * top + (1 - share) * below):02x}" for top, below in pairs)


def faint(svg: bytes, ground: str, behind: str) -> dict[str, float]:
    """Text, marks and lines of a figure whose contrast with its ground is too low; not grids, bands and what is behind.

    What has the colour of the ground is a rim or the inside of a hollow mark.

    Args:
        behind: The colour of areas behind marks.
    """
    found = {}
    for kind, colour in _drawn(ElementTree.fromstring(svg), "", 1.0, ground):
        least = WORDS if "text" in kind else LINES
        if colour not in (ground, behind) and contrast(colour, ground) < least:
            found[f"{kind} {colour}"] = round(contrast(colour, ground), 2)
    return found


def _drawn(node: ElementTree.Element, kind: str, opacity: float, ground: str) -> Iterator[tuple[str, str]]:
    for part in node:
        own, seen = part.get("class") or kind, opacity * float(part.get("opacity", 1))
        if _BEHIND.search(own):
            continue
        for what in ("fill", "stroke"):
            shown = seen * float(part.get(f"{what}-opacity", 1))
            if part.get("stroke-width") != "0" and shown and re.fullmatch("#[0-9a-f]{6}", colour := part.get(what, "")):
                yield own, over(colour, ground, shown)
        yield from _drawn(part, own, seen, ground)

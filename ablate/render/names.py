"""Names of variants in the columns of a table: whole, as names that are cut short are soon alike."""

from __future__ import annotations

import re

from rich.text import Text

from ablate.render.cells import joined, plain

_PART = re.compile(r"[@(]?[^,@(]+,?")
_HALF = re.compile(r"[^=]+=?")


def in_lines(name: str, width: int) -> str:
    """A name in lines of at most `width` characters, broken after commas and before what is swept or tuned.

    A part that is longer is broken after its `=`, and otherwise stays in one piece.
    """
    lines = [""]
    parts = [half for part in _PART.findall(name) for half in (_HALF.findall(part) if len(part) > width else [part])]
    for part in parts:
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.strip() for line in lines)


def named(name: str, width: int) -> Text:
    """The same as a cell."""
    return joined(plain(line) for line in in_lines(name, width).splitlines())

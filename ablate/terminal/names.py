"""Names of variants in the columns of a table: whole, as names that are cut short are soon alike."""

from __future__ import annotations

import re

_PART = re.compile(r"[@(]?[^,@(]+,?")


def in_lines(name: str, width: int) -> str:
    """A name in lines of at most `width` characters, broken after commas and before what is swept or tuned.

    A part that is longer stays in one piece.
    """
    lines = [""]
    for part in _PART.findall(name):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.strip() for line in lines)

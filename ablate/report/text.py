"""Text of a user's on a terminal: as it is, and harmless; and the plain table that it goes into."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.table import Table
from rich.text import Text

MOST_NAMES = 8
"""A sentence that lists more names than this counts the rest."""
NARROW = 90
"""Columns of a terminal below which tables are set close, and intervals go on a line of their own."""


def plain(value: str, style: str = "") -> Text:
    """Text that is shown as it is: rich reads no markup in it, and no control code reaches the terminal."""
    printable = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in " ".join(value.split()))
    return Text(printable, style=style)


def joined(lines: Iterable[Text]) -> Text:
    """The lines of one cell."""
    return Text("\n").join(lines)


def counted(counts: Iterable[tuple[str, int]]) -> list[str]:
    """`3 failed` and so on, but for what there is none of."""
    return [f"{n} {what}" for what, n in counts if n]


def plural(number: int, noun: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Iterable[str]) -> str:
    """`a, b and c`; beyond `MOST_NAMES` and one more the rest are counted."""
    found = shortened(names)
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"


def shortened(names: Iterable[str]) -> list[str]:
    """The names; beyond `MOST_NAMES` and one more, the first of them and a count of the rest."""
    found = list(names)
    if len(found) > MOST_NAMES + 1:  # that one more is as short as the count of it
        return [*found[:MOST_NAMES], f"{len(found) - MOST_NAMES} others"]
    return found


def plain_table(gap: int) -> Table:
    """An empty table with a rule below its headings and `gap` blanks between columns."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0), header_style="bold")

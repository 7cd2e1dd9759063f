"""Cells and tables of a terminal: text of a user as it is, but harmless."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.table import Table
from rich.text import Text

NARROW = 90
"""Columns of a terminal below which tables are compact and intervals get a line of their own."""


def plain(value: str, style: str = "") -> Text:
    """Text that is shown as it is: rich reads no markup in it, and no control code reaches the terminal."""
    printable = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in " ".join(value.split()))
    return Text(printable, style=style)


def joined(lines: Iterable[Text]) -> Text:
    """The lines of one cell."""
    return Text("\n").join(lines)


def plain_table(gap: int) -> Table:
    """An empty table with a rule below its headings and `gap` blanks between columns."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0), header_style="bold")

"""Cells and tables of a terminal: text of a user as it is, but harmless; names whole, broken where they may be."""

from __future__ import annotations

import re
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


def plain_table(gap: int = 2, texts: Iterable[str] = (), numbers: Iterable[str] = ()) -> Table:
    """A table with a rule below its headings and `gap` blanks between columns; texts are folded, numbers are not."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0), header_style="bold")
    for title in texts:
        table.add_column(plain(title), overflow="fold")
    for title in numbers:
        table.add_column(plain(title), justify="right", no_wrap=True)
    return table


def bare_table(first: str, numbers: Iterable[str], gap: int = 2) -> Table:
    """A table without rules: the names of its rows, and numbers."""
    table = Table(box=None, padding=(0, gap, 0, 0), header_style="dim")
    table.add_column(first, no_wrap=True)
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    return table


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

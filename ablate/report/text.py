"""Text of a user's on a terminal: as it is, and harmless."""

from __future__ import annotations

from rich.text import Text


def plain(value: str, style: str = "") -> Text:
    """Text that is shown as it is: rich reads no markup in it, and no control code reaches the terminal."""
    printable = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in " ".join(value.split()))
    return Text(printable, style=style)

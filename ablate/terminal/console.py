"""The consoles that commands print on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def make_console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr: in colour on a terminal, plain text into a pipe."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=False)


def say(console: Console, line: str, **style: Any) -> None:
    """Print one line as it is, without markup and without wrapping."""
    from rich.text import Text

    console.print(Text(line, **style), soft_wrap=True)

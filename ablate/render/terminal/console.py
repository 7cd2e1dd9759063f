"""The consoles that commands print on, and standard output when it carries JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from ablate.errors import printable
from ablate.processes import lost_output, open_json_output

if TYPE_CHECKING:
    from rich.console import Console

_json_output: TextIO | None = None


def make_console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr: in colour on a terminal, plain text into a pipe."""
    from rich.console import Console

    # With a file rich asks for its encoding, and draws lines of ASCII where it has no others.
    return Console(file=sys.stderr if stderr else sys.stdout, highlight=False, soft_wrap=False)


def say(console: Console, line: str, **style: Any) -> None:
    """Print one line as it is, without markup and without wrapping."""
    from rich.text import Text

    console.print(Text(printable(line), **style), soft_wrap=True)


@contextmanager
def stdout_for_json_alone() -> Iterator[None]:
    """Within it `print_json` alone writes to standard output; what anything else prints goes to standard error.

    Libraries, plugins and child processes print too: Ray does when it connects. For a real process this holds to its
    end, because some of them print when it ends.
    """
    global _json_output
    stdout: TextIO = sys.stdout
    stdout.flush()
    _json_output = stdout
    if stdout is sys.__stdout__:  # else somebody captures what is printed
        _json_output = open_json_output(stdout)
        os.dup2(sys.stderr.fileno(), stdout.fileno())
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = stdout
        if stdout is not sys.__stdout__:
            _json_output = None  # the next command of this process has another place to print on


def print_json(plain: Any, *, indent: int | None = 2) -> None:
    """Print plain data, whose numbers are finite, as JSON on standard output."""
    text = json.dumps(plain, indent=indent, ensure_ascii=False, allow_nan=False)
    print(text, file=_json_output or sys.stdout, flush=True)


def lost_printing() -> OSError | None:
    """Why a part of what a command printed on standard output is lost; None if nothing is."""
    return lost_output(_json_output) or lost_output(sys.stdout)


def print_next_steps(console: Console, title: str, steps: dict[str, str]) -> None:
    """Print a title and, below it, a line for each command (to its purpose, which may be empty)."""
    from rich.text import Text

    console.print(Text(title), soft_wrap=True)
    width = max(len(command) for command in steps)
    for command, purpose in steps.items():
        line = Text(f"  {command}", style="bold cyan")
        if purpose:
            line.append(" " * (width - len(command)) + f"   # {purpose}", style="not bold default dim")
        console.print(line, soft_wrap=True)

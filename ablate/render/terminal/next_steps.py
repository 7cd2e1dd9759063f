"""Suggested next commands, aligned, each with its purpose; they can be copied as they are."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text


def print_next_steps(console: Console, title: str, steps: dict[str, str]) -> None:
    """Print a title and, below it, a line for each command (to its purpose, which may be empty)."""
    console.print(Text(title), soft_wrap=True)
    width = max(len(command) for command in steps)
    for command, purpose in steps.items():
        line = Text(f"  {command}", style="bold cyan")
        if purpose:
            line.append(" " * (width - len(command)) + f"   # {purpose}", style="not bold default dim")
        console.print(line, soft_wrap=True)

"""The commands of the command line, one file each: parse, call, print.

A file NAME.py here holds the function of `ablate NAME` under that name (with an underscore behind it where Python
owns the name); `PANELS` says under which heading of `ablate --help` it stands. Whatever is heavy is imported inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

PANELS = {
    "Studies": ("new", "plan", "study", "list"),
    "Answers": ("show", "report", "claims", "calibrate", "diff"),
    "Trials": ("reproduce", "generate", "translate"),
    "Spaces and blocks": ("validate", "schema", "data", "kinds", "cost", "bench", "draw", "check"),
}


def commands() -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """Each command as (panel, name, function), in the order in which the help shows them."""
    for panel, names in PANELS.items():
        for name in names:
            module = import_module(f"ablate.commands.{name}")
            yield panel, name, getattr(module, name, None) or getattr(module, f"{name}_")

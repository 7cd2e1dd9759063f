"""The commands of the command line, one file each: parse, call, print.

A file NAME.py here holds the function of `ablate NAME` under that name (with an underscore behind it where Python
owns the name); `PANELS` says under which heading of `ablate --help` it stands. Whatever is heavy is imported inside.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

PANELS = {
    "Studies": ("new", "plan", "study", "status", "list"),
    "Answers": ("show", "report", "claims", "calibrate", "diff", "export", "dashboard"),
    "Trials": ("reproduce", "generate", "translate"),
    "Spaces and blocks": ("validate", "schema", "data", "kinds", "cost", "bench", "draw", "check"),
}
PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}
"""Every command, in the order in which the help shows them."""


def function_of(name: str) -> Callable[..., Any]:
    """The function of a command."""
    module = import_module(f"ablate.commands.{name}")
    function: Callable[..., Any] = getattr(module, name, None) or getattr(module, f"{name}_")
    return function

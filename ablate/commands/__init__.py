"""The commands of the command line, one file each: parse, call, print.

A file NAME.py here holds the function of `ablate NAME` under that name (`check_store` for `check-store`, with an
underscore behind it where Python owns the name); `PANELS` says under which heading of `ablate --help` it stands.
Whatever is heavy is imported inside.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

PANELS = {
    "Studies": ("new", "plan", "study", "status", "list", "check-store"),
    "Answers": ("show", "report", "claims", "calibrate", "diff", "export", "dashboard"),
    "Trials": ("reproduce", "generate", "translate"),
    "Spaces and blocks": ("validate", "schema", "data", "kinds", "cost", "bench", "draw", "check"),
}
PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}
"""Every command, in the order in which the help shows them."""


def function_of(name: str) -> Callable[..., Any]:
    """The function of a command."""
    own = name.replace("-", "_")
    module = import_module(f"ablate.commands.{own}")
    function: Callable[..., Any] = getattr(module, own, None) or getattr(module, f"{own}_")
    return function

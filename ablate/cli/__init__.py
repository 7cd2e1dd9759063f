"""The command line: a module for each heading of `ablate --help`; `app.py` calls the commands."""

from __future__ import annotations

from ablate.cli.app import main

__all__ = ["main"]

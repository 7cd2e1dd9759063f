"""Starts the further Python processes of a command, which find the same modules as it does.

A process that `python -m` starts looks for modules in the working folder first, where a `copy.py` or a folder `wandb`
of the user's would stand in for what it needs. So every process is started without that (`-P`). What only this process
finds, because it runs a script or a notebook, is found there too, but after everything that is installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_MODULES = "ABLATE_MODULE_PATH"


def python_command(*arguments: str) -> list[str]:
    """The command that runs this Python with these arguments, without the working folder in its module path."""
    return [sys.executable, "-P", *arguments]


def child_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process that finds the modules of this one, once it has called `adopt_modules`.

    Args:
        more: Variables besides those of this process.
    """
    folders = dict.fromkeys(str(Path(folder).absolute()) for folder in sys.path)
    environment = {**os.environ, _MODULES: os.pathsep.join(folders), **(more or {})}
    home = str(Path(__file__).absolute().parents[1])
    if home in (str(Path(folder).absolute()) for folder in ("", *sys.path[:1])):  # found through the working folder
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), home)))
    return environment


def adopt_modules() -> None:
    """Find what the process that started this one finds, after what this one finds by itself."""
    known = {str(Path(folder).absolute()) for folder in sys.path}
    sys.path += [folder for folder in os.environ.get(_MODULES, "").split(os.pathsep) if folder and folder not in known]

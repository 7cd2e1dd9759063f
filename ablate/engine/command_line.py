"""The command that a person typed: how to say it again, and what of it may be written down."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

_PASSWORD = re.compile(r"(?<=://)([^:/@\s]*):[^@/\s]+@")


def program() -> str:
    """The name that runs this program as it was called: a path if the name alone would find another or none."""
    called = Path(sys.argv[0])
    found = shutil.which(called.name)
    if called.name != "ablate" or (found is not None and called.exists() and Path(found).samefile(called)):
        return "ablate"
    return str(called)


def command(*arguments: str) -> str:
    """A command of this program, ready to be typed into a shell; without passwords."""
    return hide_passwords(shlex.join([program(), *arguments]))


def hide_passwords(text: str) -> str:
    """The text with `***` for the password of each URL."""
    return _PASSWORD.sub(r"\1:***@", text)

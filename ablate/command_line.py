"""Command lines for messages and records: how to type a command again, with passwords hidden."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

_PASSWORD = re.compile(r"(?<=://)([^:/@\s]*):[^@/\s]+@")


def program() -> str:
    """The name under which this program runs; its path if the shell would not find it by name."""
    called = Path(sys.argv[0])
    path = shutil.which(called.name)
    if called.name != "ablate" or (path is not None and called.exists() and Path(path).samefile(called)):
        return "ablate"
    return str(called)


def command(*arguments: str) -> str:
    """A command of this program, quoted for a shell, with passwords hidden."""
    return hide_passwords(shlex.join([program(), *arguments]))


def hide_passwords(text: str) -> str:
    """Replace the password of each URL with `***`."""
    return _PASSWORD.sub(r"\1:***@", text)


def without_option(words: Iterable[str], option: str) -> Iterator[str]:
    """The words of a command without an option and its value, written as `--option VALUE` or `--option=VALUE`."""
    rest = iter(words)
    for word in rest:
        if word == option:
            next(rest, None)
        elif not word.startswith(f"{option}="):
            yield word

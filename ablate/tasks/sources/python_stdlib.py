"""`builtin:python_stdlib`: the source code of the running interpreter's standard library, without its tests."""

from __future__ import annotations

import os
import sysconfig
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from ablate.tasks.base import Say
from ablate.tasks.sources import Document, Source

LEFT_OUT = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})
"""Folders that are tests, not part of the library, or not source."""


class PythonStdlib(Source):
    """Every `.py` file, sorted by relative path and decoded as PEP 263 says; files that do not decode are left out."""

    prefix: ClassVar[str] = "builtin:python_stdlib"

    def documents(self, say: Say) -> Iterator[Document]:
        """One document for each file, named by its path in the library."""
        root = Path(sysconfig.get_path("stdlib"))
        undecodable = 0
        for name in sorted(_names(root)):
            try:
                with tokenize.open(root / name) as file:
                    text = file.read()
                text.encode()  # a codec such as utf-7 can give lone surrogates, which no tokenizer takes
            except (SyntaxError, UnicodeError):
                undecodable += 1
                continue
            yield Document(name, text)
        if undecodable:
            say(f"Files of the standard library left out because they do not decode: {undecodable}")


def _names(root: Path) -> Iterator[str]:
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in LEFT_OUT]
        for name in files:
            if name.endswith(".py"):
                yield (Path(folder) / name).relative_to(root).as_posix()

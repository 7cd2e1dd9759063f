"""`builtin:python_stdlib`: the source code of the running interpreter's standard library, without its tests."""

from __future__ import annotations

import os
import sysconfig
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from ablate.tasks.base import Say
from ablate.tasks.sources import BadRows, Document, Row, Source, picked

LEFT_OUT = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})
"""Folders that are tests, not part of the library, or not source."""

FEWEST_FILES = 10
"""Files in a package whose name is a label; fewer cannot be divided into training and validation."""


class PythonStdlib(Source):
    """Every `.py` file, sorted by relative path and decoded as PEP 263 says; files that do not decode are left out.

    Columns: `text`, `file` (its path) and `package` (its topmost folder). Who asks for `package` is given the files of
    packages that have some, and no file that is a module of its own.
    """

    kind: Literal["builtin:python_stdlib"] = "builtin:python_stdlib"
    columns = ("text", "file", "package")

    def documents(self, column: str, bad_rows: BadRows, say: Say) -> Iterator[Document]:
        """One document for each file, named by its path in the library; the column makes no difference."""
        root = Path(sysconfig.get_path("stdlib"))
        yield from _documents(root, sorted(_names(root)), say)

    def rows(self, columns: Sequence[str], bad_rows: BadRows, say: Say) -> Iterator[Row]:
        """A row for each file."""
        root = Path(sysconfig.get_path("stdlib"))
        names = sorted(_names(root))
        if "package" in columns:
            sizes: dict[str, int] = {}
            for name in names:
                sizes[_package(name)] = sizes.get(_package(name), 0) + 1
            names = [name for name in names if _package(name) and sizes[_package(name)] >= FEWEST_FILES]
        for name, text in _documents(root, names, say):
            values = {"text": text, "file": name, "package": _package(name)}
            yield Row(name, picked(columns, values, self.kind))


def _package(name: str) -> str:
    return name.partition("/")[0] if "/" in name else ""


def _documents(root: Path, names: Sequence[str], say: Say) -> Iterator[Document]:
    undecodable = 0
    for name in names:
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

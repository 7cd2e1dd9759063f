"""`builtin:python_stdlib`: the source code of the running interpreter's standard library, without its tests."""

from __future__ import annotations

import os
import sysconfig
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from ablate.spec.task import Say
from ablate.tasks.sources import BadRows, Row, Source, SourceDocument, pick_columns

LEFT_OUT = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})
"""Folders with tests, installed packages or compiled files."""

FEWEST_FILES = 10
"""Minimum number of files in a package that is used as a label, so that it can be split."""


class PythonStdlib(Source):
    """All `.py` files, sorted by relative path and decoded according to PEP 263; undecodable files are left out.

    Columns: `text`, `file` (the path) and `package` (the top-level folder). If the column `package` is requested, only
    files of packages with at least 10 files are read, and no top-level modules.
    """

    kind: Literal["builtin:python_stdlib"] = "builtin:python_stdlib"
    columns = ("text", "file", "package")

    def documents(self, column: str, bad_rows: BadRows, say: Say) -> Iterator[SourceDocument]:
        """One document for each file, named by its path in the library; `column` is ignored."""
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
            yield Row(name, pick_columns(columns, values, self.kind))


def _package(name: str) -> str:
    return name.partition("/")[0] if "/" in name else ""


def _documents(root: Path, names: Sequence[str], say: Say) -> Iterator[SourceDocument]:
    undecodable = 0
    for name in names:
        try:
            with tokenize.open(root / name) as file:
                text = file.read()
            text.encode()  # codecs such as utf-7 can produce lone surrogates, which tokenizers reject
        except (SyntaxError, UnicodeError):
            undecodable += 1
            continue
        yield SourceDocument(name, text)
    if undecodable:
        say(f"Files of the standard library left out because they do not decode: {undecodable}")


def _names(root: Path) -> Iterator[str]:
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in LEFT_OUT]
        for name in files:
            if name.endswith(".py"):
                yield (Path(folder) / name).relative_to(root).as_posix()

"""Data that needs no network: numbers in English and German words, and the source code of the standard library."""

from __future__ import annotations

import os
import sysconfig
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from ablate.spec.task import Say
from ablate.tasks.sources import BadRows, Row, Source, SourceDocument, pick_columns

COUNT, STEP = 20_000, 37
"""Numbers 1, 38, 75 ... below 740,000."""

_ENGLISH = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_ENGLISH_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_GERMAN = [
    "null",
    "ein",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
]
_GERMAN_TENS = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]


class NumberWords(Source):
    """20,000 numbers below 740,000 as words, in the columns `english` and `german`.

    German puts ones before tens and joins all words, so a translator must reorder and segment.
    """

    kind: Literal["builtin:number_words"] = "builtin:number_words"
    columns = ("english", "german")

    def rows(self, columns: Sequence[str], bad_rows: BadRows, say: Say) -> Iterator[Row]:
        """A row for each number."""
        for number in range(1, 1 + COUNT * STEP, STEP):
            values = {"english": english(number), "german": german(number)}
            yield Row(f"{self.kind}#{number}", pick_columns(columns, values, self.kind))


def english(number: int) -> str:
    """A number from 1 to 999,999 in British English words."""
    if number >= 1000:
        rest = number % 1000
        join = " and " if 0 < rest < 100 else " "
        return f"{english(number // 1000)} thousand" + (join + english(rest) if rest else "")
    if number >= 100:
        return f"{_ENGLISH[number // 100]} hundred" + (f" and {english(number % 100)}" if number % 100 else "")
    if number >= 20:
        return _ENGLISH_TENS[number // 10 - 2] + (f"-{_ENGLISH[number % 10]}" if number % 10 else "")
    return _ENGLISH[number]


def german(number: int) -> str:
    """A number from 1 to 999,999 as one German word; 1 at its end is `eins`."""
    return _german(number) + ("s" if number % 100 == 1 else "")


def _german(number: int) -> str:
    if number >= 1000:
        return f"{_german(number // 1000)}tausend" + (_german(number % 1000) if number % 1000 else "")
    if number >= 100:
        return f"{_GERMAN[number // 100]}hundert" + (_german(number % 100) if number % 100 else "")
    if number >= 20:
        ones = f"{_GERMAN[number % 10]}und" if number % 10 else ""
        return ones + _GERMAN_TENS[number // 10 - 2]
    return _GERMAN[number]


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

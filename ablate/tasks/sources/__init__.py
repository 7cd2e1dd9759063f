"""Sources of data, one file each in this folder. An address like `builtin:python_stdlib` or `file:PATH` names one.

A source gives rows (named columns, for tasks with labels) and documents (one text each, for language models).
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from ablate.errors import DataError
from ablate.spec.base import refusal
from ablate.tasks.base import Say

VALIDATION_NAMES = ("validation", "valid", "val", "dev")
"""What a split to validate on is called, best first; another split but `train` is left out."""
TEST = "test"
"""What a split for the test is called; it is left out too, unless it is asked for."""


class Document(NamedTuple):
    """One text, never split between training and validation."""

    name: str
    text: str


class Row(NamedTuple):
    """Values of the columns that were asked for.

    Attributes:
        where: File and line, or what else names the row in a message.
        values: In the order in which the columns were asked for.
        split: `train`, `validation` or `test` where the source has such a division of its own, else empty.
    """

    where: str
    values: tuple[str, ...]
    split: str = ""


class BadRows:
    """What happens to rows that cannot be read: refused at the first, or left out and counted.

    Args:
        refuse: Whether to refuse.
    """

    def __init__(self, refuse: bool) -> None:
        self._refuse = refuse
        self.count = 0
        self.first = ""

    def meet(self, where: str, problem: str) -> None:
        """Note a bad row.

        Raises:
            DataError: Bad rows are refused.
        """
        if self._refuse:
            remedy = "Mend the row, or set `bad_rows: skip` in the task to leave such rows out and count them."
            raise DataError(problem, where=where, remedy=remedy)
        self.count += 1
        self.first = self.first or f"{where}: {problem}"


class Source(ABC):
    """Where data comes from. A final subclass in this folder is found by itself.

    Args:
        argument: What follows the prefix in the address.
        with_test: Whether rows of a split for the test are asked for.
    """

    prefix: ClassVar[str]
    """The address, or its start up to and including the colon if an argument follows."""
    argument_name: ClassVar[str] = ""
    """What follows the prefix, as messages call it; empty if nothing may follow."""

    def __init__(self, argument: str, with_test: bool = False) -> None:
        self.argument = argument
        self.with_test = with_test

    def __init_subclass__(cls) -> None:
        _SOURCES[cls.prefix] = cls

    @abstractmethod
    def rows(self, columns: Sequence[str], bad_rows: BadRows, say: Say) -> Iterator[Row]:
        """The rows, always in the same order, one at a time; what else is left out is counted in one line to `say`.

        Raises:
            DataError: The source is missing, has no such column (the message lists those that it has), or holds a bad
                row that is refused.
        """

    def documents(self, column: str, bad_rows: BadRows, say: Say) -> Iterator[Document]:
        """The texts of one column, always in the same order, one at a time.

        Raises:
            DataError: As `rows`.
        """
        for row in self.rows((column,), bad_rows, say):
            yield Document(row.where, row.values[0])

    def missing(self) -> str | None:
        """A sentence that says what is not there, found without reading any data; None if nothing is known to be."""
        return None

    def revision(self) -> str:
        """The version of the data that will be read, where the source keeps several; it counts in the fingerprint."""
        return ""


_SOURCES: dict[str, type[Source]] = {}


def parse(address: str, *, with_test: bool = False) -> Source:
    """The source that an address names, with its split for the test or without. Nothing is read yet.

    Raises:
        DataError: There is no such source; the message names the nearest.
    """
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    for prefix, source in _SOURCES.items():
        rest = address.removeprefix(prefix)
        if address.startswith(prefix) and bool(rest) == bool(source.argument_name):
            return source(rest, with_test)
    forms = {prefix: f"`{prefix}{source.argument_name}`" for prefix, source in sorted(_SOURCES.items())}
    near = difflib.get_close_matches(address, forms, n=1)
    raise DataError(
        "there is no such source of data",
        expected=f"one of {', '.join(forms.values())}",
        got=repr(address),
        remedy=f"Did you mean {forms[near[0]]}?" if near else "Files of your own need `file:` before their path.",
    )


def check_address(address: str) -> str:
    """The address, for a validator of a field that holds one.

    Raises:
        ValidationError: There is no such source.
    """
    try:
        parse(address)
    except DataError as error:
        rule = f"{error.problem}: the address of data is {error.expected}"
        raise refusal((), address, rule, error.remedy or "", kind="no_source") from None
    return address


def no_column(where: str, missing: str, there: Iterable[str]) -> DataError:
    """The refusal of a column that is not there."""
    known = list(there)
    near = difflib.get_close_matches(missing, known, n=1)
    listed = ", ".join(f"`{name}`" for name in known)
    return DataError(
        f"there is no column `{missing}`",
        where=where,
        expected=f"one of {listed}",
        remedy=f"Did you mean `{near[0]}`?" if near else "Name the columns in the task as the data does.",
    )


def picked(columns: Sequence[str], values: dict[str, str], where: str) -> tuple[str, ...]:
    """Values in the order of `columns`.

    Raises:
        DataError: A column is not there.
    """
    for column in columns:
        if column not in values:
            raise no_column(where, column, values)
    return tuple(values[column] for column in columns)

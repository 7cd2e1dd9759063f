"""Data sources, one file each in this folder, named by addresses such as `builtin:python_stdlib` or `file:PATH`.

A source yields rows (named columns, for tasks with labels) and documents (one text each, for language models).
`SourcedSpec` is a task that reads a source, `TokenizedSpec` one that also tokenizes the text.
"""

from __future__ import annotations

import difflib
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from ablate.errors import DataError
from ablate.spec.annotations import OneOf, Spelling
from ablate.spec.base import Family, Kinded, refusal
from ablate.spec.code import NamesKind
from ablate.spec.task import Say, TaskSpec
from ablate.tasks.tokenizers import TokenizerSpec

SOURCES = Family("data source", package="ablate.tasks.sources", entry_points="ablate.sources")

VALIDATION_NAMES = ("validation", "valid", "val", "dev")
"""Names of a validation split, in order of preference. Splits with other names, except `train`, are ignored."""
TEST = "test"
"""Name of the test split, which is read only if the task asks for it."""


class SourceDocument(NamedTuple):
    """A text with a name."""

    name: str
    text: str

    @property
    def ends(self) -> bool:
        """Whether this is the end of the text."""
        return True


class Piece(SourceDocument):
    """A piece of a text, followed by another piece."""

    __slots__ = ()

    @property
    def ends(self) -> bool:
        """False."""
        return False


class Row(NamedTuple):
    """Values of the requested columns.

    Attributes:
        where: Location of the row for messages, such as file and line.
        values: Values in the order of the requested columns.
        split: `train`, `validation` or `test` if the source has splits, else empty.
    """

    where: str
    values: tuple[str, ...]
    split: str = ""


class BadRows:
    """Collects rows that cannot be read: raises at the first, or counts them.

    Args:
        refuse: Whether a bad row raises an error.
    """

    def __init__(self, refuse: bool) -> None:
        self._refuse = refuse
        self.count = 0
        self.first = ""

    def add(self, where: str, problem: str) -> None:
        """Record a bad row.

        Raises:
            DataError: `refuse` is True.
        """
        if self._refuse:
            remedy = "Correct the row, or set `bad_rows: skip` in the task to skip and count such rows."
            raise DataError(problem, where=where, remedy=remedy)
        self.count += 1
        self.first = self.first or f"{where}: {problem}"


class Source(Kinded):
    """A source of data. A final subclass adds `kind` and `rows`, and `argument_name` if its address has an argument.

    Its address is the kind alone (`builtin:listops`), or the kind, a colon and an argument (`file:PATH`).
    """

    family = SOURCES
    columns: ClassVar[tuple[str, ...]] = ()
    """The columns of the source; empty if they depend on the argument."""
    argument_name: ClassVar[str] = ""
    """Name of the argument in messages; empty if the address has no argument."""

    argument: str = ""
    """The part of the address after the colon."""
    with_test: bool = False
    """Whether the rows of a test split are read."""
    partial: bool = False
    """Whether reading may stop early, so that the data should not be fetched as a whole first."""

    @classmethod
    def form(cls) -> str:
        """The address with the name of the argument, such as `file:PATH`."""
        return f"{cls.kind_name()}:{cls.argument_name}" if cls.argument_name else cls.kind_name()

    @classmethod
    def facts(cls) -> dict[str, str | bool]:
        """The address."""
        return {"address": cls.form()}

    @property
    def address(self) -> str:
        """The address as written in a space."""
        return f"{self.kind_name()}:{self.argument}" if self.argument else self.kind_name()

    @abstractmethod
    def rows(self, columns: Sequence[str], bad_rows: BadRows, say: Say) -> Iterator[Row]:
        """Yield the rows one at a time, always in the same order. Other omissions are reported to `say` in one line.

        Raises:
            DataError: The source is missing, lacks a column (the message lists the existing ones), or has a bad row
                that is refused.
        """

    def documents(self, column: str, bad_rows: BadRows, say: Say) -> Iterator[SourceDocument]:
        """Yield the texts of one column one at a time, always in the same order.

        Raises:
            DataError: As `rows`.
        """
        for row in self.rows((column,), bad_rows, say):
            yield SourceDocument(row.where, row.values[0])

    def only_text(self, say: Say) -> Callable[[], Iterator[str]] | None:
        """If the source has exactly one document, a function that reads its lines; otherwise or if unknown, None.

        Such a document may be larger than memory.

        Raises:
            DataError: As `rows`.
        """
        return None

    def missing(self) -> str | None:
        """What is known to be missing, as a sentence, without reading any data; None if nothing is."""
        return None

    def revision(self) -> str:
        """Version of the data, if the source has versions. It is part of the fingerprint."""
        return ""


_MOVED: dict[str, str] = {}
"""Addresses whose data is read from another place, and that place."""


@contextmanager
def read_from(address: str, place: str) -> Iterator[None]:
    """Within it, the data of an address is read from another place. Specs, and so the keys of trials, stay as they are.

    Args:
        address: As a space writes it.
        place: The address of the same data now.

    Raises:
        DataError: There is no such source.
    """
    parse(place)
    _MOVED[address] = place
    try:
        yield
    finally:
        del _MOVED[address]


def parse(address: str, *, with_test: bool = False, partial: bool = False) -> Source:
    """The source at an address, without reading any data.

    Raises:
        DataError: There is no such source; the message suggests the closest match.
    """
    kinds, address = _kinds(), _MOVED.get(address, address)
    for kind, source in kinds.items():
        argument = address.removeprefix(f"{kind}:")
        if source.argument_name and "" != argument != address:
            return source(argument=argument, with_test=with_test, partial=partial)
        if not source.argument_name and address == kind:
            return source(with_test=with_test, partial=partial)
    forms = {kind: f"`{source.form()}`" for kind, source in kinds.items()}
    near = difflib.get_close_matches(address, forms, n=1)
    raise DataError(
        "there is no such data source",
        where="data",
        expected=f"one of {', '.join(forms.values())}",
        got=repr(address),
        remedy=f"Did you mean {forms[near[0]]}?" if near else "Write `file:` before the path of a file.",
    )


def _kinds() -> dict[str, type[Source]]:
    return {kind: source for kind, source in SOURCES.members().items() if issubclass(source, Source)}


class _AddressRule(NamesKind):
    """Annotation for fields that hold the address of a source."""

    @staticmethod
    def named(text: str) -> Source:
        """The source at the address."""
        return parse(text)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(cls._check, handler(source))

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        forms = [re.escape(kind) + (":.+" if source.argument_name else "") for kind, source in _kinds().items()]
        return {**handler(schema), "pattern": f"^({'|'.join(forms)})$"}

    @staticmethod
    def _check(address: str) -> str:
        try:
            parse(address)
        except DataError as error:
            rule = f"{error.problem}: the address of the data is {error.expected}"
            raise refusal((), address, rule, error.remedy or "", kind="no_source") from None
        return address


Address = Annotated[str, _AddressRule]
"""The address of a source."""


def no_column(where: str, missing: str, existing: Iterable[str]) -> DataError:
    """The error for a column that does not exist."""
    known = list(existing)
    near = difflib.get_close_matches(missing, known, n=1)
    listed = ", ".join(f"`{name}`" for name in known)
    return DataError(
        f"there is no column `{missing}`",
        where=where,
        expected=f"one of {listed}",
        remedy=f"Did you mean `{near[0]}`?" if near else "Use the column names of the data in the task.",
    )


def pick_columns(columns: Sequence[str], values: dict[str, str], where: str) -> tuple[str, ...]:
    """Values in the order of `columns`.

    Raises:
        DataError: A column does not exist.
    """
    for column in columns:
        if column not in values:
            raise no_column(where, column, values)
    return tuple(values[column] for column in columns)


Column = Annotated[str, Spelling(r"\S", "a column has a name, or in a file without a header a number counted from 1")]


class SourcedSpec(TaskSpec):
    """A task on rows or texts of a source."""

    data: Address
    """Address of the data: `builtin:NAME`, `file:PATH` with a file, a glob or a folder, or `hub:NAME`."""
    bad_rows: Literal["refuse", "skip"] = "refuse"
    """Whether a bad row stops the preparation, or is skipped and counted."""

    def missing(self) -> str | None:
        return parse(self.data).missing()


class TokenizedSpec(SourcedSpec):
    """A task on tokenized text."""

    tokenizer: Annotated[TokenizerSpec, OneOf]
    """The tokenizer."""
    context: int = Field(ge=2, le=1_000_000)
    """Number of tokens in one input."""

    @property
    def length(self) -> int:
        """The context."""
        return self.context

"""Sources of data, one file each in this folder. An address like `builtin:python_stdlib` or `file:PATH` names one.

A source gives rows (named columns, for tasks with labels) and documents (one text each, for language models).
"""

from __future__ import annotations

import difflib
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from ablate.errors import DataError
from ablate.spec.base import Family, Kinded, refusal
from ablate.tasks.base import Say

SOURCES = Family("data source", package="ablate.tasks.sources", entry_points="ablate.sources")

VALIDATION_NAMES = ("validation", "valid", "val", "dev")
"""What a split to validate on is called, best first; another split but `train` is left out."""
TEST = "test"
"""What a split for the test is called; it is left out too, unless it is asked for."""


class Document(NamedTuple):
    """One text."""

    name: str
    text: str

    @property
    def ends(self) -> bool:
        """Whether the text ends here."""
        return True


class Piece(Document):
    """The beginning, or a further piece, of a text that goes on."""

    __slots__ = ()

    @property
    def ends(self) -> bool:
        """False: another piece follows."""
        return False


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


class Source(Kinded):
    """Where data comes from. A final subclass adds `kind` and `rows`, and `argument_name` if its address has one.

    A space names it by its address: the kind alone (`builtin:listops`), or the kind, a colon and an argument
    (`file:PATH`).
    """

    family = SOURCES
    columns: ClassVar[tuple[str, ...]] = ()
    """Columns that it always has; empty where that depends on the argument."""
    argument_name: ClassVar[str] = ""
    """What follows the colon in the address, as messages call it; empty if nothing may follow."""

    argument: str = ""
    """What follows the colon in the address."""
    with_test: bool = False
    """Whether rows of a split for the test are asked for."""

    @classmethod
    def form(cls) -> str:
        """Its address with a name for the argument: `file:PATH`."""
        return f"{cls.kind_name()}:{cls.argument_name}" if cls.argument_name else cls.kind_name()

    @classmethod
    def facts(cls) -> dict[str, str | bool]:
        """Its address."""
        return {"address": cls.form()}

    @property
    def address(self) -> str:
        """How a space names it."""
        return f"{self.kind_name()}:{self.argument}" if self.argument else self.kind_name()

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

    def only_text(self, say: Say) -> Callable[[], Iterator[str]] | None:
        """The lines of the only document, read anew at each call, if the source is known to have just one.

        Such a document may be longer than memory. None: `documents` tells how many there are.

        Raises:
            DataError: As `rows`.
        """
        return None

    def missing(self) -> str | None:
        """A sentence that says what is not there, found without reading any data; None if nothing is known to be."""
        return None

    def revision(self) -> str:
        """The version of the data that will be read, where the source keeps several; it counts in the fingerprint."""
        return ""


def parse(address: str, *, with_test: bool = False) -> Source:
    """The source that an address names, with its split for the test or without. Nothing is read yet.

    Raises:
        DataError: There is no such source; the message names the nearest.
    """
    kinds = _kinds()
    for kind, source in kinds.items():
        argument = address.removeprefix(f"{kind}:")
        if source.argument_name and "" != argument != address:
            return source(argument=argument, with_test=with_test)
        if not source.argument_name and address == kind:
            return source(with_test=with_test)
    forms = {kind: f"`{source.form()}`" for kind, source in kinds.items()}
    near = difflib.get_close_matches(address, forms, n=1)
    raise DataError(
        "there is no such source of data",
        expected=f"one of {', '.join(forms.values())}",
        got=repr(address),
        remedy=f"Did you mean {forms[near[0]]}?" if near else "Files of your own need `file:` before their path.",
    )


def _kinds() -> dict[str, type[Source]]:
    return {kind: source for kind, source in SOURCES.members().items() if issubclass(source, Source)}


class _Names:
    """Annotation for a field that holds the address of a source."""

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
            rule = f"{error.problem}: the address of data is {error.expected}"
            raise refusal((), address, rule, error.remedy or "", kind="no_source") from None
        return address


Address = Annotated[str, _Names]
"""The address of a source."""


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

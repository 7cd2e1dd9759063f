"""The contract of a data source."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from ablate.contracts.contract import Contract, by_name, round_trips_through_json
from ablate.errors import DataError
from ablate.tasks.sources import SOURCES, BadRows, Row, Source, parse

_ROWS = 50
_NO_COLUMN = "no_such_column"


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The columns that are asked for.

    Attributes:
        columns: Those that the source always has; none if that depends on its argument.
    """

    columns: tuple[str, ...]


def _rows(spec: Source, columns: tuple[str, ...]) -> list[Row]:
    rows = spec.rows(columns, BadRows(refuse=True), lambda line: None)
    return list(itertools.islice(rows, _ROWS))


def round_trips_through_address(spec: Source, context: SourceContext) -> Iterator[str]:
    """Its address names it again."""
    if parse(spec.address, with_test=spec.with_test, partial=spec.partial) != spec:
        yield f"`{spec.address}` names another source"


def has_its_columns(spec: Source, context: SourceContext) -> Iterator[str]:
    """It has rows, and each has a text for every column that it says it has, in the order asked for."""
    if not context.columns:
        return
    rows = _rows(spec, context.columns)
    if not rows:
        yield "it has no rows"
    for row in rows:
        if len(row.values) != len(context.columns) or not all(isinstance(value, str) for value in row.values):
            yield f"{row.where} has the values {row.values!r}"
            return
    turned = [row.values[::-1] for row in _rows(spec, context.columns[::-1])]
    if turned != [row.values for row in rows]:
        yield "asked for in another order, columns hold other values"


def rows_are_deterministic(spec: Source, context: SourceContext) -> Iterator[str]:
    """Read twice it gives the same rows in the same order."""
    if context.columns and _rows(spec, context.columns) != _rows(spec, context.columns):
        yield "read again it gives other rows, or another order"


def gives_documents(spec: Source, context: SourceContext) -> Iterator[str]:
    """Each of its columns can be read as documents."""
    for column in context.columns:
        documents = spec.documents(column, BadRows(refuse=True), lambda line: None)
        if not all(isinstance(document.text, str) for document in itertools.islice(documents, _ROWS)):
            yield f"a document of `{column}` is not text"


def refuses_an_unknown_column(spec: Source, context: SourceContext) -> Iterator[str]:
    """A column that it has not is a `DataError` which names the column."""
    try:
        _rows(spec, (_NO_COLUMN,))
    except DataError as error:
        if _NO_COLUMN not in str(error):
            yield f"the refusal of the column `{_NO_COLUMN}` does not name it: {error}"
    else:
        yield f"it gave rows for the column `{_NO_COLUMN}`"


def reports_missing_data(spec: Source, context: SourceContext) -> Iterator[str]:
    """`missing` says nothing of data that is there."""
    if said := spec.missing():
        yield f"it says that something is missing: {said}"


CONTRACT: Contract[Source, SourceContext] = Contract(
    family=SOURCES,
    rules=by_name(
        round_trips_through_address,
        has_its_columns,
        rows_are_deterministic,
        gives_documents,
        refuses_an_unknown_column,
        reports_missing_data,
        round_trips_through_json,
    ),
    contexts=lambda spec: [SourceContext(spec.columns)],
    describe=lambda context: f"columns {', '.join(context.columns)}" if context.columns else "no columns known",
)

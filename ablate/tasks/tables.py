"""Readers of tables in csv, tsv, jsonl and parquet files: one row at a time, with its line number."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ablate.errors import DataError
from ablate.extras import require
from ablate.tasks.compression import lines
from ablate.tasks.sources import BadRows, no_column

Read = Callable[[Path, Sequence[str], BadRows], Iterator[tuple[str, tuple[str, ...]]]]
"""A reader takes file, columns and `BadRows`, and yields the location (file and line) and the values of each row."""


def read_csv(path: Path, columns: Sequence[str], bad_rows: BadRows) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Read comma-separated values with double quotes."""
    return _read_delimited(path, columns, bad_rows, delimiter=",", strict=True)


def read_tsv(path: Path, columns: Sequence[str], bad_rows: BadRows) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Read tab-separated values; quotation marks have no special meaning."""
    return _read_delimited(path, columns, bad_rows, delimiter="\t", quoting=csv.QUOTE_NONE)


def read_jsonl(path: Path, columns: Sequence[str], bad_rows: BadRows) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Read one JSON object from each line; the first object defines the columns."""
    known: set[str] | None = None
    for number, (_, line) in enumerate(lines(path), 1):
        where = f"{path}:{number}"
        if not line.strip():
            continue
        try:
            value = json.loads(line, parse_constant=_no_constant)
        except RecursionError:
            bad_rows.add(where, "this row is nested too deeply")
            continue
        except ValueError as error:
            problem = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else f"not JSON ({error})"
            bad_rows.add(where, f"this row is {problem}")
            continue
        if not isinstance(value, dict):
            bad_rows.add(where, "this row is not a JSON object")
            continue
        if known is None:
            known = set(value)
            for column in columns:
                if column not in known:
                    raise no_column(where, column, value)
        values = tuple(plain_value(value.get(column)) for column in columns)
        if is_good(values, columns, where, bad_rows):
            yield where, values


def read_parquet(path: Path, columns: Sequence[str], bad_rows: BadRows) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Read a parquet file in batches of rows."""
    require("data", "a parquet file", where=str(path), packages=("pyarrow",))
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    try:
        file = parquet.ParquetFile(path)
    except (arrow.ArrowException, OSError) as error:
        problem = str(error).partition("\n")[0]
        raise DataError(f"this is not a complete parquet file ({problem})", where=str(path)) from None
    with file:
        for column in columns:
            if column not in file.schema_arrow.names:
                raise no_column(str(path), column, file.schema_arrow.names)
        number = 0
        for batch in file.iter_batches(batch_size=1024, columns=list(columns)):
            for row in zip(*(batch.column(column).to_pylist() for column in columns), strict=True):
                number += 1
                values = tuple(plain_value(value) for value in row)
                if is_good(values, columns, f"{path}:row {number}", bad_rows):
                    yield f"{path}:row {number}", values


TABLES: dict[str, Read] = {
    ".csv": read_csv,
    ".tsv": read_tsv,
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".parquet": read_parquet,
}
"""Reader of each suffix."""


def _read_delimited(
    path: Path, columns: Sequence[str], bad_rows: BadRows, **dialect: Any
) -> Iterator[tuple[str, tuple[str, ...]]]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # fields may be very long; `lines` limits them
    # Invalid UTF-8 becomes lone surrogates, which `is_good` rejects.
    reader = csv.reader((line.decode(errors="surrogateescape") for _, line in lines(path)), **dialect)
    rows = _rows(reader, str(path), bad_rows)
    first = next(rows, None)
    if first is None:
        return
    if all(column.isdecimal() for column in columns):  # no header: columns are counted from 1
        header, rows = [str(number) for number in range(1, len(first[1]) + 1)], chain([first], rows)
    else:
        header = first[1]
    if not all(_is_unicode(name) and "\0" not in name for name in header):
        remedy = "Convert the file to UTF-8 text."
        raise DataError("the column names are not UTF-8 text", where=first[0], remedy=remedy)
    for column in columns:
        if column not in header:
            raise no_column(first[0], column, header)
    for column in columns:
        if header.count(column) > 1:
            remedy = "Give each column a unique name."
            raise DataError(f"{header.count(column)} columns are named `{column}`", where=first[0], remedy=remedy)
    indices = [header.index(column) for column in columns]
    for where, row in rows:
        if len(row) != len(header):
            bad_rows.add(where, f"this row has {len(row)} fields, but there are {len(header)} columns")
            continue
        values = tuple(row[index] for index in indices)
        if is_good(values, columns, where, bad_rows):
            yield where, values


def _rows(reader: Any, name: str, bad_rows: BadRows) -> Iterator[tuple[str, list[str]]]:
    while True:
        where = f"{name}:{reader.line_num + 1}"
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            bad_rows.add(where, f"this row cannot be read ({error})")
            continue
        if row:
            yield where, row


def plain_value(value: object) -> str:
    """A value as text: strings unchanged, finite numbers and booleans as JSON, anything else as an empty string."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return json.dumps(value)
    return ""


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not allowed")


def is_good(values: Sequence[str], columns: Sequence[str], where: str, bad_rows: BadRows) -> bool:
    """Whether every value is non-empty text; if not, the row is added to `bad_rows`."""
    for column, value in zip(columns, values, strict=True):
        problem = ""
        if not value.strip():
            problem = f"the column `{column}` is empty or not text"
        elif "\0" in value:
            problem = f"the column `{column}` contains a NUL byte"
        elif not _is_unicode(value):
            problem = f"the column `{column}` is not UTF-8 text"
        if problem:
            bad_rows.add(where, problem)
            return False
    return True


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

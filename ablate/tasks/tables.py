"""Tables in files: csv, tsv, jsonl and parquet, one row at a time, with the line of every row."""

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
from ablate.tasks.compression import lines
from ablate.tasks.sources import BadRows, no_column

Read = Callable[[Path, Sequence[str], BadRows], Iterator[tuple[str, tuple[str, ...]]]]
"""(file, columns, what happens to bad rows) to file and line, and the values."""


def read_csv(path: Path, columns: Sequence[str], bad_rows: BadRows) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Comma separated values, quoted as spreadsheets do."""
    return _delimited(path, columns, bad_rows, delimiter=",", strict=True)


def read_tsv(path: Path, columns: Sequence[str], bad_rows: BadRows) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Tab separated values; a quotation mark is a character like any other."""
    return _delimited(path, columns, bad_rows, delimiter="\t", quoting=csv.QUOTE_NONE)


def read_jsonl(path: Path, columns: Sequence[str], bad_rows: BadRows) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A JSON object on every line; the first one says which columns there are."""
    known: set[str] | None = None
    for number, (_, line) in enumerate(lines(path), 1):
        where = f"{path}:{number}"
        if not line.strip():
            continue
        try:
            value = json.loads(line, parse_constant=_no_constant)
        except RecursionError:
            bad_rows.meet(where, "this row is nested too deeply")
            continue
        except ValueError as error:
            problem = "no UTF-8 text" if isinstance(error, UnicodeDecodeError) else f"no JSON ({error})"
            bad_rows.meet(where, f"this row is {problem}")
            continue
        if not isinstance(value, dict):
            bad_rows.meet(where, "this row is no JSON object")
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
    """A parquet file, read in batches of rows."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise DataError(
            "reading parquet files needs the package `pyarrow`",
            where=str(path),
            remedy='Install it with `pip install "ablate-blocks[data]"`.',
        ) from None
    try:
        file = parquet.ParquetFile(path)
    except (arrow.ArrowException, OSError) as error:
        problem = str(error).partition("\n")[0]
        raise DataError(f"this is no whole parquet file ({problem})", where=str(path)) from None
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
"""Suffix to how such a table is read."""


def _delimited(
    path: Path, columns: Sequence[str], bad_rows: BadRows, **dialect: Any
) -> Iterator[tuple[str, tuple[str, ...]]]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # a field may be a book; `lines` bounds it
    # Bytes that are no UTF-8 become lone surrogates, and their row is found to be bad.
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
        raise DataError("the names of the columns are no UTF-8 text", where=first[0], remedy=remedy)
    for column in columns:
        if column not in header:
            raise no_column(first[0], column, header)
    for column in columns:
        if header.count(column) > 1:
            remedy = "Give each column a name of its own."
            raise DataError(f"{header.count(column)} columns are called `{column}`", where=first[0], remedy=remedy)
    places = [header.index(column) for column in columns]
    for where, row in rows:
        if len(row) != len(header):
            bad_rows.meet(where, f"this row has {len(row)} fields, and there are {len(header)} columns")
            continue
        values = tuple(row[place] for place in places)
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
            bad_rows.meet(where, f"this row cannot be read ({error})")
            continue
        if row:
            yield where, row


def plain_value(value: object) -> str:
    """A value as text; a finite number or a truth value is a label too, all else is no value."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return json.dumps(value)
    return ""


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is none of its values")


def is_good(values: Sequence[str], columns: Sequence[str], where: str, bad_rows: BadRows) -> bool:
    """Whether every value is text; if not, the row is a bad one."""
    for column, value in zip(columns, values, strict=True):
        problem = ""
        if not value.strip():
            problem = f"the column `{column}` is empty, or no text, here"
        elif "\0" in value:
            problem = f"the column `{column}` holds a NUL byte"
        elif not _is_unicode(value):
            problem = f"the column `{column}` is no UTF-8 text"
        if problem:
            bad_rows.meet(where, problem)
            return False
    return True


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

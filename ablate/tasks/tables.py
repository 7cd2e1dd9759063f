"""Reads tables in csv, tsv, jsonl and parquet files, plain or compressed, row by row, each with its line number."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import math
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from ablate.errors import DataError
from ablate.extras import require
from ablate.locations import check_regular
from ablate.tasks.sources import BadRows, no_column

COMPRESSED = {".gz": "gzip", ".xz": "xz", ".zst": "zstandard"}
"""Name of the format of each suffix."""

LONGEST = 1 << 26
"""Maximum number of bytes in a line or document."""


def inner_name(path: Path) -> Path:
    """The path without a compression suffix."""
    return path.with_suffix("") if path.suffix in COMPRESSED else path


@contextmanager
def open_decompressed(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading and decompress it according to its suffix.

    Raises:
        DataError: The file cannot be read, or is not a complete file of its format.
    """
    name = COMPRESSED.get(path.suffix, "")
    try:
        with _open_binary(path) as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise _broken_table(path, name, error) from None
    except OSError as error:
        raise DataError(
            f"the file cannot be read ({error.strerror or error})", where=str(path), remedy="Check its permissions."
        ) from None
    except Exception as error:
        if type(error).__name__ != "ZstdError":
            raise
        raise _broken_table(path, name, error) from None


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Every line with the offset of its first byte; a byte order mark is removed.

    Raises:
        DataError: As `open_decompressed`, or a line is longer than `LONGEST`.
    """
    with open_decompressed(path) as file:
        offset = 0
        while line := file.readline(LONGEST):
            if len(line) == LONGEST:
                raise too_long(path, "line")
            start, offset = offset, offset + len(line)
            yield (start, line) if start else (0, line.removeprefix(b"\xef\xbb\xbf"))


def too_long(path: Path, what: str) -> DataError:
    """The error for a line or document that is longer than `LONGEST`."""
    return DataError(
        f"a {what} is too long",
        where=str(path),
        expected=f"at most {LONGEST // (1 << 20)} MiB",
        remedy="Divide the text into documents by lines that hold only `<|endoftext|>`, or into several files.",
    )


def _open_binary(path: Path) -> BinaryIO:
    check_regular(path, DataError)
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.open(path, "rb"))
    if path.suffix == ".zst":
        return io.BufferedReader(_zstandard(path), 1 << 20)
    return path.open("rb", buffering=1 << 20)


def _zstandard(path: Path) -> io.RawIOBase:
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdDecompressor

        return _WholeZstandard(path, ZstdDecompressor)
    require("data", "a zstandard file", where=str(path), packages=("zstandard",))
    import zstandard

    return _WholeZstandard(path, lambda: zstandard.ZstdDecompressor().decompressobj())


class _Frame(Protocol):
    """Decompresses one frame: what `compression.zstd` and the package `zstandard` have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


class _WholeZstandard(io.RawIOBase):
    """A reader of zstandard files that rejects truncated files, which the libraries' own readers accept."""

    def __init__(self, path: Path, new_frame: Callable[[], _Frame]) -> None:
        self._file = path.open("rb")
        self._new = new_frame
        self._frame = new_frame()
        self._in_frame = False
        self._ready = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fill a buffer with decompressed bytes."""
        view = memoryview(buffer)  # type: ignore[arg-type]
        while not self._ready and (chunk := self._file.read(1 << 16)):
            self._decompress(chunk)
        if not self._ready and self._in_frame:
            raise EOFError("it ends within a frame")
        chunk = self._ready[: len(view)]
        view[: len(chunk)] = chunk
        self._ready = self._ready[len(chunk) :]
        return len(chunk)

    def _decompress(self, chunk: bytes) -> None:
        while chunk:
            self._in_frame = True
            self._ready += self._frame.decompress(chunk)
            if not self._frame.eof:
                return
            chunk = self._frame.unused_data
            self._frame, self._in_frame = self._new(), False

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


def _broken_table(path: Path, name: str, error: Exception) -> DataError:
    return DataError(
        f"this is not a complete {name} file ({error})", where=str(path), remedy="Compress the text again."
    )


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

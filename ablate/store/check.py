"""Checks an SQLite store row by row, and exports the readable rows of a damaged one. Opens it read-only by sqlite3.

SQLite's own checks (`PRAGMA integrity_check`, `PRAGMA foreign_key_check`) do not validate values: after a byte of a
text has changed, the database is intact but the text may not be UTF-8 or JSON. So every row is read as the store reads
it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Column, Table
from sqlalchemy.dialects import sqlite

from ablate.errors import NotFoundError, StoreError
from ablate.locations import typed_path
from ablate.store.database import foreign_error, foreign_schema
from ablate.store.failures import LONGEST_VALUE, check_locks
from ablate.store.rows import problem_of
from ablate.store.tables import metadata, parse_json

_MOST_FINDINGS = 20
_UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""Exceptions raised when reading a damaged file; their messages may contain bytes of the file."""
_VERSIONS = "alembic_version"


@dataclass(frozen=True, slots=True)
class TableCheck:
    """The readable and damaged rows of a table.

    Attributes:
        name: Name of the table.
        whole: Number of rows without unreadable values.
        damaged: Number of rows that were reached and have an unreadable value.
        complete: Whether all rows were reached.
    """

    name: str
    whole: int
    damaged: int
    complete: bool


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """The result of a check of a store.

    Attributes:
        where: The file.
        findings: The problems, one line each; empty for an intact store.
        tables: Every table that was found.
    """

    where: str
    findings: tuple[str, ...]
    tables: tuple[TableCheck, ...]


def check_store(location: str | Path, export: Path | None = None) -> StoreCheck:
    """Check an SQLite store without changing it.

    Args:
        location: The file, or its URL.
        export: A new file to which all readable rows are written as a store.

    Raises:
        NotFoundError: There is no such file.
        StoreError: It is not an SQLite file, or `export` exists or cannot be written.
    """
    path = _file(location)
    if export is not None and export.exists():
        raise StoreError("this file already exists", where=str(export), remedy="Name a new file with --out.")
    try:
        with closing(_open_read_only(path)) as connection:
            if foreign := foreign_schema(lambda statement: _decode_rows(connection.execute(statement))):
                raise foreign_error(foreign, str(path))
            findings = [*_integrity(connection), *_foreign_keys(connection)]
            schema = _schema(connection)
            rows = {name: _Rows(connection, name) for name in schema}
            tables = tuple(row.check(findings) for row in rows.values())
            if not tables:
                raise sqlite3.DatabaseError("it has no table of a store")
            if export is not None:
                _write(export, schema, rows)
    except _UNREADABLE as error:
        raise StoreError("this file cannot be read", where=str(path), got=repr(str(error))) from None
    return StoreCheck(str(path), tuple(findings), tables)


def _file(location: str | Path) -> Path:
    text = str(location).removeprefix("sqlite:///")
    if "://" in text:
        remedy = "For PostgreSQL, check with `pg_amcheck` and save with `pg_dump`."
        raise StoreError("only an SQLite store can be checked", where="--store", remedy=remedy)
    path = typed_path(text, StoreError)
    if not path.is_file():
        raise NotFoundError("there is no such file", where=str(path), remedy="Name the store with --store.")
    check_locks(path.parent, str(path))
    return path


def _open_read_only(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)
    connection.text_factory = bytes  # decoded value by value
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 4 * LONGEST_VALUE)
    return connection


def _decode_rows(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[Any]]:
    return ([_text(value) for value in row] for row in rows)


def _integrity(connection: sqlite3.Connection) -> Iterator[str]:
    try:
        for (message,) in connection.execute(f"PRAGMA integrity_check({_MOST_FINDINGS})"):
            if message != b"ok":
                yield from _readable(message).splitlines()
    except _UNREADABLE as error:
        yield str(error)


def _foreign_keys(connection: sqlite3.Connection) -> Iterator[str]:
    try:
        for count, (table, _, parent, _) in enumerate(connection.execute("PRAGMA foreign_key_check")):
            if count == _MOST_FINDINGS:
                return
            yield f"a row of {_readable(table)} refers to a row of {_readable(parent)} that does not exist"
    except _UNREADABLE as error:
        yield str(error)


def _schema(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """The CREATE statements of the tables of a store and their indexes; referenced tables come first."""
    schema: dict[str, list[str]] = {name: [] for name in (_VERSIONS, *(table.name for table in metadata.sorted_tables))}
    with suppress(*_UNREADABLE):
        query = "SELECT tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type = 'index'"
        for name, statement in connection.execute(query):
            if _readable(name) in schema:
                schema[_readable(name)].append(_readable(statement))
    return {name: statements for name, statements in schema.items() if statements}


def _readable(value: bytes) -> str:
    return value.decode(errors="replace")


class _Rows:
    """The rows of a table in a file that may be damaged.

    Args:
        connection: Connection to the file.
        name: Name of the table.
    """

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._table: Table | None = metadata.tables.get(name)
        self._complete = True

    def check(self, findings: list[str]) -> TableCheck:
        """Read every row and append problems to `findings`."""
        whole = damaged = 0
        if missing := self._missing():
            findings.append(f"{self._name}: it has no column {', '.join(missing)}")
        for row in self._readable_rows():
            problem = self._problem(row)
            whole, damaged = whole + (problem is None), damaged + (problem is not None)
            if problem is not None and damaged <= _MOST_FINDINGS:
                findings.append(f"{self._name}: {problem}")
        if not self._complete:
            findings.append(f"{self._name}: some rows cannot be reached")
        return TableCheck(self._name, whole, damaged, self._complete)

    def whole(self) -> Iterator[Mapping[str, Any]]:
        """The rows without unreadable values."""
        for row in self._readable_rows():
            if self._problem(row) is None:
                yield {name: _text(value) for name, value in row.items()}

    def _readable_rows(self) -> Iterator[dict[str, Any]]:
        """The rows in order; if one cannot be reached, also the rows from the last one backwards."""
        seen: set[Any] = set()
        for order in ("", *(f" ORDER BY {end}" for end in self._reverse_order())):
            try:
                cursor = self._connection.execute(f"SELECT * FROM {self._name}{order}")
                names = [column[0] for column in cursor.description]
                for row in cursor:
                    identity = row if self._table is None else row[: len(self._table.primary_key)]
                    if not order or identity not in seen:
                        seen.add(identity)
                        yield dict(zip(names, row, strict=True))
                return
            except _UNREADABLE:
                self._complete = False

    def _missing(self) -> list[str]:
        """The columns that the table lacks, as in a file of another version or one that was changed by hand."""
        if self._table is None:
            return []
        found = {_readable(row[1]) for row in self._connection.execute(f"PRAGMA table_info({self._name})")}
        return [column.name for column in self._table.columns if column.name not in found]

    def _reverse_order(self) -> Iterator[str]:
        if self._table is not None:
            yield ", ".join(f"{column.name} DESC" for column in self._table.primary_key)

    def _problem(self, row: Mapping[str, Any]) -> str | None:
        """The problem of a row; None if there is none."""
        if self._table is None:
            return None
        try:
            absent = dict.fromkeys(self._table.columns.keys())
            values = absent | {name: _read_cell(name, self._table.c.get(name), value) for name, value in row.items()}
        except ValueError as error:
            problem: str | None = str(error)
        else:
            problem = problem_of(self._name, values)
        return None if problem is None else f"the row {self._key(row)} cannot be read: {problem}"

    def _key(self, row: Mapping[str, Any]) -> str:
        keys = [] if self._table is None else [column.name for column in self._table.primary_key]
        return " ".join(repr(_text(row[name]))[:40] for name in keys if name in row)


def _text(value: Any) -> Any:
    """A value, decoded if it is bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


_DIALECT = sqlite.dialect(json_deserializer=parse_json)


def _read_cell(name: str, column: Column[Any] | None, value: Any) -> Any:
    """The value of a cell as the store reads it.

    Raises:
        ValueError: It is not UTF-8, or longer than the store reads.
    """
    if isinstance(value, bytes):
        if len(value) > LONGEST_VALUE:
            raise ValueError(f"`{name}`: longer than {LONGEST_VALUE >> 20} MiB")
        try:
            value = value.decode()
        except UnicodeDecodeError:
            raise ValueError(f"`{name}`: this is not UTF-8") from None
    if column is None or value is None:
        return value
    convert = column.type.dialect_impl(_DIALECT).result_processor(_DIALECT, None)
    return value if convert is None else convert(value)


def _write(export: Path, schema: Mapping[str, list[str]], rows: Mapping[str, _Rows]) -> None:
    """Write all readable rows whose referenced rows are readable to a new file."""
    try:
        with closing(sqlite3.connect(export)) as connection:
            connection.execute("PRAGMA foreign_keys = ON")
            for name, statements in schema.items():
                for statement in statements:
                    connection.execute(statement)
                for row in rows[name].whole():
                    places = ", ".join("?" * len(row))
                    with suppress(sqlite3.IntegrityError):  # a referenced row was lost
                        connection.execute(f"INSERT INTO {name} ({', '.join(row)}) VALUES ({places})", [*row.values()])
            connection.commit()
    except (sqlite3.Error, OSError) as error:
        export.unlink(missing_ok=True)
        raise StoreError("the readable rows cannot be written", where=str(export), got=repr(str(error))) from None

"""`Database`: an engine with two kinds of transaction, on SQLite or PostgreSQL. Opens it and brings it up to date."""

from __future__ import annotations

import itertools
import os
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Insert,
    Table,
    create_engine,
    event,
    false,
    inspect,
    make_url,
    text,
)
from sqlalchemy.exc import ArgumentError

from ablate.errors import NotFoundError, StoreError
from ablate.locations import typed_path
from ablate.store.failures import DAMAGED, FORMS, MEND, failures_told
from ablate.store.locks import check_locks, shared_file_system
from ablate.store.migrations import SCHEMA_VERSION, upgrade
from ablate.store.tables import leases

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

# How long a transaction waits for another one, in seconds.
_PATIENCE = 30.0
# Of the first schema, and of every one since.
_FIRST_TABLES = {"studies", "variants", "study_variants", "trials", "study_trials", "curves"}
# Any number that other programs are unlikely to lock as well.
_UPGRADE_LOCK = 7_221_190_461


class Database:
    """An open database with the newest schema.

    Attributes:
        where: How to name it to a person: a path, or a URL without its password.
        schema_version: Revision of its tables.
        shared_by: The kind of network file system that its file is on; None if it is on none.
    """

    shared_by: str | None = None

    def __init__(self, location: str | Path, *, create: bool) -> None:
        url = _url(location)
        backend = url.get_backend_name()
        self._path = path = _file(url)
        self.where = str(path) if path else url.render_as_string(hide_password=True)
        if backend not in ("sqlite", "postgresql"):
            raise StoreError("this kind of database cannot be a store", where=self.where, expected=FORMS)
        with failures_told(self.where):
            if path is not None:
                self._check_file(path, create=create)
                check_locks(path.parent, self.where)
                if not create and _never_written(path):
                    url = _immutable(path)
            self._engine = create_engine(url, pool_pre_ping=path is None)
        self._reader = self._engine
        if backend == "sqlite":
            # Its readers and writers share memory, which those on several machines do not.
            self.shared_by = None if path is None else shared_file_system(path)
            self._listen(write_ahead=create and path is not None and self.shared_by is None)
        else:
            self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ")
        self._identity: tuple[int, int] | None = None
        self._log_identity: tuple[int, int] | None = None
        self._rescued: Path | None = None
        try:
            self.schema_version = self._prepare(create=create)
        except BaseException:
            self.close()
            raise
        self._identity = self._identity_now()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the store throughout, and makes records of its rows.

        Raises:
            StoreError: The database refuses, or a row is not what a store writes.
        """
        try:
            with failures_told(self.where), self._reader.begin() as connection:
                yield connection
        except (ValueError, TypeError, LookupError) as error:  # a text that is no UTF-8, no JSON, no date, no state ...
            got = f"a value that cannot be read ({type(error).__name__})"
            raise StoreError(DAMAGED, where=self.where, got=got, remedy=MEND) from error

    @contextmanager
    def writing(self, alone: Table | None = None, *, more: bool = False) -> Iterator[Connection]:
        """A transaction that happens whole or not at all.

        Args:
            alone: A table that nobody else may write meanwhile. (SQLite has one writer at a time anyway.)
            more: Whether another transaction follows for the same thing; then that one tells of a file that is gone.

        Raises:
            StoreError: The database refuses. Or its file was deleted or replaced since it was opened: then all that it
                held, and this transaction, are in a new file beside it.
        """
        if self._identity is not None and self._identity_now() != self._identity:
            self._rescued = self._rescue()
        self._log_identity = self._identity_now("-wal")
        with failures_told(self.where), self._engine.connect() as connection:
            connection.execution_options(writes=True, preserve_rowcount=True)
            with connection.begin():
                if alone is not None and connection.dialect.name == "postgresql":
                    connection.execute(text(f"LOCK TABLE {alone.name} IN SHARE ROW EXCLUSIVE MODE"))
                yield connection
        if self._rescued is not None and not more:
            rescued, self._rescued = self._rescued, None
            raise StoreError(
                "the store was deleted or replaced while it was in use",
                where=self.where,
                remedy=f"All that was recorded is in {rescued}. Move it to where the store was, and go on.",
            )

    def _identity_now(self, ending: str = "") -> tuple[int, int] | None:
        """What tells the file, or one beside it, from any other that takes its place; None where there is none."""
        if self._path is None:
            return None
        try:
            found = self._path.with_name(self._path.name + ending).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _rescue(self) -> Path:
        """Copy the file that is still open, though it is no more where it was, and work on the copy from here on."""
        assert self._path is not None
        names = (self._path.with_name(f"{self._path.stem}.rescued-{number}.db") for number in itertools.count(1))
        path = next(name for name in names if not name.exists())
        with failures_told(self.where):
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._engine.connect() as connection, closing(sqlite3.connect(path)) as copy:
                kept = connection.connection.driver_connection
                assert isinstance(kept, sqlite3.Connection)
                kept.backup(copy)
            if self._log_identity is not None and self._identity_now("-wal") == self._log_identity:
                # Its changes are in the copy; SQLite would apply them to whatever file stands there now.
                for ending in ("-wal", "-shm"):
                    self._path.with_name(self._path.name + ending).unlink(missing_ok=True)
        self.close()
        self._path, self._engine = path, create_engine(_url(path))
        self._reader = self._engine
        self._listen(write_ahead=self.shared_by is None)
        self._identity = self._identity_now()
        return path

    def insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """An insert that knows `on_conflict_do_nothing`, which no standard has and both databases spell alike."""
        dialect = import_module(f"sqlalchemy.dialects.{self._engine.dialect.name}")  # alone: each takes its time
        insert: sqlite.Insert | postgresql.Insert = dialect.insert(table)
        return insert

    def upsert(self, table: Table, keep: Sequence[str] = (), where: ColumnElement[bool] | None = None) -> Insert:
        """An insert of whole rows that replaces the row with the same primary key.

        Args:
            table: Where to.
            keep: Columns that a replaced row keeps.
            where: What must hold for a row to be replaced.
        """
        insert = self.insert(table)
        replaced = {column.name: insert.excluded[column.name] for column in table.c if column.name not in keep}
        return insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=replaced, where=where)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _check_file(self, path: Path, *, create: bool) -> None:
        if path.is_dir():
            raise StoreError("a store is a file, and this is a folder", where=self.where, expected=FORMS)
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.exists():
            raise self._nothing_here()

    def _nothing_here(self) -> NotFoundError:
        return NotFoundError(
            "there is no store here yet",
            where=self.where,
            remedy="Make a first study, `ablate study spaces/simplify_block.yaml`, or name another store with --store.",
        )

    def _listen(self, *, write_ahead: bool) -> None:
        """Set up each new SQLite connection, and begin transactions ourselves."""

        @event.listens_for(self._engine, "connect")
        def connected(connection: sqlite3.Connection, _: object) -> None:
            try:
                # The driver's own transactions begin too late: a read that goes on to write would fail under another
                # writer instead of waiting for it.
                connection.isolation_level = None
                connection.execute(f"PRAGMA busy_timeout = {int(_PATIENCE * 1000)}")
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("PRAGMA synchronous = NORMAL")
                if write_ahead:
                    _write_ahead(connection)
            except sqlite3.Error:
                connection.close()  # Nobody else knows it yet.
                raise

        @event.listens_for(self._engine, "begin")
        def begun(connection: Connection) -> None:
            writes = connection.get_execution_options().get("writes", False)
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    def _prepare(self, *, create: bool) -> str:
        """Make or upgrade the tables if need be."""
        with self.reading() as connection:
            version = self._version(connection)
        if version is None and not create:
            raise self._nothing_here()
        if version == SCHEMA_VERSION and not create:
            return version
        with self.writing() as connection:
            if version != SCHEMA_VERSION:
                if connection.dialect.name == "postgresql":
                    connection.execute(text(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})"))
                # Another process may have been here first.
                if self._version(connection) != SCHEMA_VERSION:
                    upgrade(connection)
            # Whoever means to write hears now, not after the first trial, that it is not possible.
            connection.execute(leases.delete().where(false()))
        return SCHEMA_VERSION

    def _version(self, connection: Connection) -> str | None:
        """Revision of the tables, None if there are none.

        Raises:
            StoreError: The tables are not ours, or of a newer ablate.
        """
        names = inspect(connection).get_table_names()
        if not names:
            return None
        version = None
        if "alembic_version" in names:
            version = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        # Other programs count their migrations so too.
        if version is None or not re.fullmatch(r"\d{4}", str(version)) or not {*names} >= _FIRST_TABLES:
            raise StoreError(
                "this database belongs to another program",
                where=self.where,
                expected="a store made by ablate, or an empty database",
                got=f"the tables {', '.join(sorted(names)[:5])}",
                remedy="Name another store with --store.",
            )
        if str(version) > SCHEMA_VERSION:
            raise StoreError(
                "a newer ablate wrote this store",
                where=self.where,
                expected=f"schema {SCHEMA_VERSION} or older",
                got=f"schema {version}",
                remedy="Install the newest ablate (pip install -U ablate-blocks), or name another store with --store.",
            )
        return str(version)


def _url(location: str | Path) -> URL:
    if isinstance(location, Path) or "://" not in location:
        return URL.create("sqlite", database=str(typed_path(location, StoreError).absolute()))
    try:
        url = make_url(location)
    except (ValueError, ArgumentError) as error:  # ValueError: a port that is no number
        raise StoreError(
            "this is no URL of a database that ablate knows", where="the store's URL", expected=FORMS
        ) from error
    if url.drivername in ("postgres", "postgresql"):
        # The driver that we name in the README, whatever SQLAlchemy's own choice is.
        url = url.set(drivername="postgresql+psycopg")
    return url


def in_memory(location: str | Path) -> bool:
    """Whether a location names a database that is gone when the process ends."""
    return (url := _url(location)).get_backend_name() == "sqlite" and _file(url) is None


def _file(url: URL) -> Path | None:
    """The file of an SQLite database; None for one in memory, one named by a `file:` URI, and all others."""
    if url.get_backend_name() != "sqlite" or not url.database or url.database.startswith((":memory:", "file:")):
        return None
    return Path(url.database).absolute()


def _never_written(path: Path) -> bool:
    """Whether we cannot write this database and nobody is writing it."""
    effective = os.access in os.supports_effective_ids
    writable = all(os.access(place, os.W_OK, effective_ids=effective) for place in (path, path.parent))
    return not writable and not path.with_name(f"{path.name}-wal").exists()


def _immutable(path: Path) -> URL:
    """To read a write-ahead database, SQLite makes two files beside it, unless it is told that nothing will change."""
    query: dict[str, Any] = {"mode": "ro", "immutable": "1", "uri": "true"}
    return URL.create("sqlite", database=f"file:{quote(str(path))}", query=query)


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Let readers and a writer work at once. The switch is made once in a database's life, and it does not wait."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)

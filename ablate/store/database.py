"""`Database`: an SQLite or PostgreSQL database with read and write transactions. Opening upgrades its schema."""

from __future__ import annotations

import itertools
import math
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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

from ablate.errors import NotFoundError, StoreError, StudyBusyError
from ablate.extras import require
from ablate.locations import typed_path
from ablate.store.activity import living_leases
from ablate.store.failures import (
    DAMAGED,
    FORMS,
    LONGEST_VALUE,
    READING_SECONDS,
    REPAIR,
    check_locks,
    shared_file_system,
    store_errors,
)
from ablate.store.migrations import OLDEST_VERSION, SCHEMA_VERSION, upgrade
from ablate.store.tables import create_tables, leases, metadata, parse_json

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

# Seconds that a transaction waits for a lock.
_POSTGRES_DRIVER = "psycopg"
"""The documented driver, instead of SQLAlchemy's default."""
_LOCK_TIMEOUT = 30.0
# Tables of the first and of every later schema.
_FIRST_TABLES = {"studies", "variants", "study_variants", "trials", "study_trials", "curves"}
# Key of an advisory lock; an arbitrary number that other programs are unlikely to use.
_UPGRADE_LOCK = 7_221_190_461


class Database:
    """An open database with the newest schema.

    Attributes:
        where: Name of the database for messages: a path, or a URL without its password.
        schema_version: Revision of its tables; empty until it is open.
        shared_by: The kind of network file system that its file is on; None if it is on none.
    """

    shared_by: str | None = None
    schema_version: str = ""

    def __init__(self, location: str | Path, *, create: bool) -> None:
        url = _url(location)
        backend = url.get_backend_name()
        self._path = path = _file(url)
        self.where = str(path) if path else url.render_as_string(hide_password=True)
        if backend not in ("sqlite", "postgresql"):
            raise StoreError("this kind of database cannot be a store", where=self.where, expected=FORMS)
        if url.drivername == f"{backend}+{_POSTGRES_DRIVER}":
            require("postgres", "a store on PostgreSQL", where=self.where)
        with store_errors(self.where):
            if path is not None:
                self._check_file(path, create=create)
                check_locks(path.parent, self.where)
                if not create and _is_read_only(path):
                    url = _immutable(path)
            self._engine = create_engine(url, pool_pre_ping=path is None, json_deserializer=parse_json)
        self._reader = self._engine
        self._write_ahead = False
        if backend == "sqlite":
            self.shared_by = None if path is None else shared_file_system(path)
            self._listen()
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
        """A transaction that reads a consistent snapshot of the store.

        Raises:
            StoreError: The database failed, or a row has an invalid value.
        """
        try:
            with store_errors(self.where), self._reader.begin() as connection:
                self._check_version(connection)
                yield connection
        except (ValueError, TypeError, LookupError) as error:  # invalid UTF-8, JSON, date, state ...
            got = f"a value that cannot be read ({type(error).__name__})"
            raise StoreError(DAMAGED, where=self.where, got=got, remedy=REPAIR) from error

    @contextmanager
    def writing(self, alone: Table | None = None, *, more: bool = False) -> Iterator[Connection]:
        """A write transaction.

        Args:
            alone: A table to lock against other writers. (SQLite always has a single writer.)
            more: Whether another transaction of the same operation follows. Then that one raises the error of a deleted
                file.

        Raises:
            StoreError: The database failed. Or its file was deleted or replaced since it was opened; then its content
                and this transaction have been saved to a new file in the same folder.
        """
        if self._identity is not None and self._identity_now() != self._identity:
            self._rescued = self._rescue()
        self._log_identity = self._identity_now("-wal")
        with store_errors(self.where), self._engine.connect() as connection:
            connection.execution_options(writes=True, preserve_rowcount=True)
            with connection.begin():
                self._check_version(connection)
                if alone is not None and connection.dialect.name == "postgresql":
                    connection.execute(text(f"LOCK TABLE {alone.name} IN SHARE ROW EXCLUSIVE MODE"))
                yield connection
        if self._rescued is not None and not more:
            rescued, self._rescued = self._rescued, None
            raise StoreError(
                "the store was deleted or replaced while it was in use",
                where=self.where,
                remedy=f"All recorded data is in {rescued}. Move it to the store's path and run the command again.",
            )

    def _identity_now(self, suffix: str = "") -> tuple[int, int] | None:
        """Device and inode of the file, or of the file with a suffix; None if it does not exist."""
        if self._path is None:
            return None
        try:
            status = self._path.with_name(self._path.name + suffix).stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _rescue(self) -> Path:
        """Copy the deleted file, which is still open, to a new file, and continue with the copy."""
        assert self._path is not None
        names = (self._path.with_name(f"{self._path.stem}.rescued-{number}.db") for number in itertools.count(1))
        path = next(name for name in names if not name.exists())
        with store_errors(self.where):
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._engine.connect() as connection, closing(sqlite3.connect(path)) as copy:
                original = connection.connection.driver_connection
                assert isinstance(original, sqlite3.Connection)
                original.backup(copy)
            if self._log_identity is not None and self._identity_now("-wal") == self._log_identity:
                # The copy includes the changes in the log. SQLite would apply the log to a new file at this path.
                for suffix in ("-wal", "-shm"):
                    self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        self.close()
        self._path, self._engine = path, create_engine(_url(path), json_deserializer=parse_json)
        self._reader = self._engine
        self._listen()
        self._identity = self._identity_now()
        return path

    def insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """An insert with `on_conflict_do_nothing`, which is not standard SQL but the same in both dialects."""
        dialect = import_module(f"sqlalchemy.dialects.{self._engine.dialect.name}")  # the other one is slow to import
        insert: sqlite.Insert | postgresql.Insert = dialect.insert(table)
        return insert

    def upsert(self, table: Table, keep: Sequence[str] = (), where: ColumnElement[bool] | None = None) -> Insert:
        """An insert that replaces rows with the same primary key.

        Args:
            table: The table.
            keep: Columns that keep their values in replaced rows.
            where: Condition for replacing a row.
        """
        insert = self.insert(table)
        replaced = {column.name: insert.excluded[column.name] for column in table.c if column.name not in keep}
        return insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=replaced, where=where)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _check_file(self, path: Path, *, create: bool) -> None:
        if path.is_dir():
            raise StoreError("a store is a file, but this is a folder", where=self.where, expected=FORMS)
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.exists():
            raise self._no_store()

    def _no_store(self) -> NotFoundError:
        return NotFoundError(
            "there is no store here yet",
            where=self.where,
            remedy="Run a study (`ablate study simplify_block`), or name another store with --store.",
        )

    def _listen(self) -> None:
        """Configure new SQLite connections and begin transactions explicitly."""

        @event.listens_for(self._engine, "connect")
        def connected(connection: sqlite3.Connection, _: object) -> None:
            try:
                # sqlite3 would begin a transaction only at the first write, which then fails instead of waiting if
                # another writer is active.
                connection.isolation_level = None
                connection.execute(f"PRAGMA busy_timeout = {int(_LOCK_TIMEOUT * 1000)}")
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute("PRAGMA trusted_schema = OFF")
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
                if self._write_ahead:
                    _write_ahead(connection)
            except sqlite3.Error:
                connection.close()  # it is not yet in the pool
                raise

        @event.listens_for(self._engine, "begin")
        def begun(connection: Connection) -> None:
            writes = connection.get_execution_options().get("writes", False)
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            limit_reading(driver, math.inf if writes else READING_SECONDS)
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    def _prepare(self, *, create: bool) -> str:
        """Create or upgrade the tables if necessary."""
        with self.reading() as connection:
            version = self._version(connection)
        if version is None and not create:
            raise self._no_store()
        if version == SCHEMA_VERSION and not create:
            return version
        if create and self._path is not None and self.shared_by is None:
            # Readers and writers share memory, which those on several machines do not. It changes the file, so that
            # it waits until the file is known to be a store of ours.
            self._write_ahead = True
            self._engine.dispose()
        with self.writing() as connection:
            if version != SCHEMA_VERSION:
                if connection.dialect.name == "postgresql":
                    connection.execute(text(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})"))
                # Another process may have created or upgraded them in the meantime.
                if (version := self._version(connection)) is None:
                    create_tables(connection, SCHEMA_VERSION)
                elif version != SCHEMA_VERSION:
                    self._upgrade(connection, version)
            # Fail now, not after the first trial, if the store cannot be written.
            connection.execute(leases.delete().where(false()))
        return SCHEMA_VERSION

    def _upgrade(self, connection: Connection, version: str) -> None:
        """Upgrade the tables, unless drivers of the version that made them are alive: they know no other tables.

        Raises:
            StudyBusyError: One is.
        """
        if connection.dialect.name == "postgresql":  # see `_check_version`
            connection.execute(text("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE"))
        if running := living_leases(connection):
            raise StudyBusyError(
                "an older version of ablate runs a study in this store, and this version would change its tables",
                where=self.where,
                expected=f"schema {SCHEMA_VERSION}, or no study that runs",
                got=f"schema {version}, and the study {running[0].study!r} by {running[0].told()}",
                remedy="Wait until it has ended or stop it; until then, read the store with the version that runs it.",
            )
        upgrade(connection)

    def _check_version(self, connection: Connection) -> None:
        """Refuse to go on once a newer version has upgraded the tables.

        It is the first statement of each transaction: on a server, an upgrade waits for those that have begun.

        Raises:
            StoreError: It has.
        """
        if not self.schema_version:  # while it is opened
            return
        if connection.execute(text("SELECT version_num FROM alembic_version")).scalar() != self.schema_version:
            self._version(connection)  # says what is there

    def _version(self, connection: Connection) -> str | None:
        """Revision of the tables; None if there are no tables.

        Raises:
            StoreError: The tables belong to another program, to a newer version of ablate, or to one before the first
                release.
        """
        names = inspect(connection).get_table_names()
        if not names:
            return None
        if connection.dialect.name == "sqlite" and (foreign := foreign_schema(connection.exec_driver_sql)):
            raise foreign_error(foreign, self.where)
        version = None
        if "alembic_version" in names:
            version = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        # Other programs also use Alembic, so check the format of the revision and the tables.
        if version is None or not re.fullmatch(r"\d{4}", str(version)) or not {*names} >= _FIRST_TABLES:
            raise StoreError(
                "this database belongs to another program",
                where=self.where,
                expected="a store created by ablate, or an empty database",
                got=f"the tables {', '.join(sorted(names)[:5])}",
                remedy="Name another store with --store.",
            )
        if str(version) > SCHEMA_VERSION:
            raise StoreError(
                "a newer version of ablate wrote this store",
                where=self.where,
                expected=f"schema {SCHEMA_VERSION} or older",
                got=f"schema {version}",
                remedy="Install the latest ablate (pip install -U ablate-blocks), or name another store with --store.",
            )
        if str(version) < OLDEST_VERSION:
            raise StoreError(
                "a version of ablate before the first release wrote this store, and this version cannot upgrade it",
                where=self.where,
                expected=f"schema {OLDEST_VERSION} or newer",
                got=f"schema {version}",
                remedy="Name another store with --store, and keep this one: the version that wrote it still reads it.",
            )
        return str(version)


def limit_reading(connection: sqlite3.Connection, seconds: float) -> None:
    """Interrupt statements of a connection after so many seconds from now."""
    end = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > end, 100_000)


def foreign_schema(execute: Callable[[str], Iterable[Any]]) -> str:
    """What the schema of an SQLite file has that no store has and that could run at a read; empty if nothing.

    Args:
        execute: Runs a statement and returns its rows.
    """
    for kind, name, sql in execute("SELECT type, name, sql FROM sqlite_master"):
        known = name in metadata.tables or name == "alembic_version"
        if kind in ("view", "trigger") or (known and (kind != "table" or sql.upper().startswith("CREATE VIRTUAL"))):
            return f"the {kind} {name}"
        if known and any(row[6] for row in execute(f"PRAGMA table_xinfo({name})")):
            return f"a computed column of {name}"
    return ""


def foreign_error(what: str, where: str) -> StoreError:
    """The refusal of a file whose schema is not that of a store."""
    return StoreError(
        "the schema of this file is not that of a store",
        where=where,
        expected="tables alone, as ablate makes them",
        got=what,
        remedy="Open stores of people whom you trust; or drop it with `sqlite3 FILE`, and open the file again.",
    )


def _url(location: str | Path) -> URL:
    if isinstance(location, Path) or "://" not in location:
        return URL.create("sqlite", database=str(typed_path(location, StoreError).absolute()))
    try:
        url = make_url(location)
    except (ValueError, ArgumentError) as error:  # ValueError: the port is not a number
        raise StoreError(
            "this is not the URL of a supported database", where="the store's URL", expected=FORMS
        ) from error
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername=f"postgresql+{_POSTGRES_DRIVER}")
    return url


def in_memory(location: str | Path) -> bool:
    """Whether a location names an in-memory database."""
    return (url := _url(location)).get_backend_name() == "sqlite" and _file(url) is None


def _file(url: URL) -> Path | None:
    """The file of an SQLite database; None for in-memory databases, `file:` URIs and other databases."""
    if url.get_backend_name() != "sqlite" or not url.database or url.database.startswith((":memory:", "file:")):
        return None
    return Path(url.database).absolute()


def _is_read_only(path: Path) -> bool:
    """Whether this database is not writable for us and has no active writer."""
    effective = os.access in os.supports_effective_ids
    writable = all(os.access(location, os.W_OK, effective_ids=effective) for location in (path, path.parent))
    return not writable and not path.with_name(f"{path.name}-wal").exists()


def _immutable(path: Path) -> URL:
    """URL to open a database as immutable. Otherwise SQLite creates files next to a WAL database even for reading."""
    query: dict[str, Any] = {"mode": "ro", "immutable": "1", "uri": "true"}
    return URL.create("sqlite", database=f"file:{quote(str(path))}", query=query)


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to WAL mode, which allows reads during a write. SQLite's busy timeout does not apply to the switch."""
    deadline = time.monotonic() + _LOCK_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)

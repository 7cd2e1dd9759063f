"""Converts errors of databases and file systems to `StoreError`s with a readable message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from typing import NamedTuple

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, NoSuchModuleError

from ablate.errors import StoreError

FORMS = "a path, sqlite:///PATH or postgresql://USER@HOST/NAME"
_ELSEWHERE = "or name another store with --store"
DAMAGED = "the database file is damaged"
REPAIR = "`ablate check-store --store FILE --out NEW` lists what can be read and saves it to a new store."
_RESUME = "then run the same command again; all recorded data is kept"


class _Failure(NamedTuple):
    """Message and remedy for an error code: name (SQLite) or SQLSTATE (PostgreSQL), or a prefix of it."""

    code: str
    problem: str
    remedy: str


# The first match is used.
_FAILURES = (
    _Failure("SQLITE_NOTADB", "this file is not a database", f"Move the file away, {_ELSEWHERE}."),
    _Failure("SQLITE_CORRUPT", DAMAGED, REPAIR),
    _Failure("SQLITE_ERROR", DAMAGED, REPAIR),  # a table or a column has lost its name: the statements are ours
    _Failure(
        "SQLITE_READONLY",
        "the store cannot be written because its file or folder is read-only",
        f"Make the file and its folder writable, {_ELSEWHERE}.",
    ),
    _Failure(
        "SQLITE_CANTOPEN",
        "the store cannot be opened",
        f"Check the permissions of its file and folder, {_ELSEWHERE}.",
    ),
    _Failure("SQLITE_FULL", "no space is left on the disk", f"Free some space, {_RESUME}."),
    _Failure("SQLITE_IOERR", "the disk failed", f"Check whether the disk is full or damaged, {_RESUME}."),
    _Failure(
        "SQLITE_BUSY",
        "another program has locked the store",
        f"Close programs that have the file open, such as a database browser, {_RESUME}.",
    ),
    _Failure("53100", "no space is left on the database's disk", f"Free some space, {_RESUME}."),
    _Failure("42501", "this user may not read or change the tables", f"Ask for the permission, {_ELSEWHERE}."),
    _Failure("3D000", "there is no such database", f"Create it, {_ELSEWHERE}."),
    _Failure("28", "the database refuses this user", f"Check the user and the password in the URL, {_ELSEWHERE}."),
    _Failure("", "the database failed", f"Check that it is running and reachable, {_RESUME}."),
)


@contextmanager
def store_errors(where: str) -> Iterator[None]:
    """Convert errors of the body to `StoreError`s, except violations of our own invariants.

    Args:
        where: The store's file, or its URL without the password.

    Raises:
        StoreError: The file system, the database or its driver failed.
    """
    try:
        yield
    except (IntegrityError, DataError):
        raise
    except (UnicodeDecodeError, JSONDecodeError) as error:
        raise StoreError(DAMAGED, where=where, got=f"text that cannot be read ({error})", remedy=REPAIR) from error
    except DBAPIError as error:
        if "Could not decode to UTF-8" in str(error.orig):
            raise StoreError(DAMAGED, where=where, got="text that is not UTF-8", remedy=REPAIR) from error
        code = getattr(error.orig, "sqlite_errorname", None) or getattr(error.orig, "sqlstate", None) or ""
        failure = next(failure for failure in _FAILURES if code.startswith(failure.code))
        message = str(error.orig).strip().partition("\n")[0]
        raise StoreError(failure.problem, where=where, got=f"{message!r}", remedy=failure.remedy) from error
    except ImportError as error:  # a driver that the URL names, or psycopg without the library of PostgreSQL
        raise StoreError(
            "the driver of this database cannot be imported",
            where=where,
            got=str(error).partition("\n")[0],
            remedy="Run `pip install 'ablate-blocks[postgres]'`, and name no driver: `postgresql://USER@HOST/NAME`.",
        ) from error
    except NoSuchModuleError as error:
        raise StoreError("this is not the URL of a supported database", where=where, expected=FORMS) from error
    except OSError as error:
        raise StoreError(
            "the folder of the store cannot be created or read",
            where=where,
            got=error.strerror,
            remedy=f"Check its permissions, {_ELSEWHERE}.",
        ) from error

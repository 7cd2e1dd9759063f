"""What databases and file systems refuse, told to a person. The one place where their errors become a `StoreError`."""

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
MEND = "`ablate check-store --store FILE --export NEW` says what can be read, and saves it to a new store."
_RESUME = "then run the same command again: everything recorded so far is kept"


class _Failure(NamedTuple):
    """An error code of SQLite (its name) or PostgreSQL (its SQLSTATE), or how it begins; what to say about it."""

    code: str
    problem: str
    remedy: str


# The first line that fits is taken.
_FAILURES = (
    _Failure("SQLITE_NOTADB", "this file is not a database", f"Move the file away, {_ELSEWHERE}."),
    _Failure("SQLITE_CORRUPT", DAMAGED, MEND),
    _Failure(
        "SQLITE_READONLY",
        "the store cannot be written, its file or folder is read-only",
        f"Make the file and its folder writable, {_ELSEWHERE}.",
    ),
    _Failure(
        "SQLITE_CANTOPEN",
        "the store cannot be opened",
        f"See that you may read and write its file and folder, {_ELSEWHERE}.",
    ),
    _Failure("SQLITE_FULL", "no space is left on the disk", f"Free some space, {_RESUME}."),
    _Failure("SQLITE_IOERR", "the disk failed", f"See whether the disk is full or broken, {_RESUME}."),
    _Failure(
        "SQLITE_BUSY",
        "another program keeps the store locked",
        f"Close what has the file open (a database browser, for instance), {_RESUME}.",
    ),
    _Failure("53100", "no space is left on the database's disk", f"Free some space, {_RESUME}."),
    _Failure("42501", "this user may not read or change the tables", f"Ask for the right to, {_ELSEWHERE}."),
    _Failure("3D000", "there is no such database", f"Create it, {_ELSEWHERE}."),
    _Failure("28", "the database refuses this user", f"Check the user and the password in the URL, {_ELSEWHERE}."),
    _Failure("", "the database does not answer as it should", f"See that it runs and can be reached, {_RESUME}."),
)

# Where the module that a URL needs and the package to install have different names.
_PACKAGES = {"psycopg": "psycopg[binary]", "psycopg2": "psycopg2-binary"}


@contextmanager
def failures_told(where: str) -> Iterator[None]:
    """Turn what goes wrong below into a `StoreError`; a breach of our own invariants stays what it is.

    Args:
        where: The store's file, or its URL without the password.

    Raises:
        StoreError: The file system, the database or its driver refused.
    """
    try:
        yield
    except (IntegrityError, DataError):
        raise
    except (UnicodeDecodeError, JSONDecodeError) as error:
        raise StoreError(DAMAGED, where=where, got=f"a text that cannot be read ({error})", remedy=MEND) from error
    except DBAPIError as error:
        if "Could not decode to UTF-8" in str(error.orig):
            raise StoreError(DAMAGED, where=where, got="a text that is no UTF-8", remedy=MEND) from error
        code = getattr(error.orig, "sqlite_errorname", None) or getattr(error.orig, "sqlstate", None) or ""
        failure = next(failure for failure in _FAILURES if code.startswith(failure.code))
        said = str(error.orig).strip().partition("\n")[0]
        raise StoreError(failure.problem, where=where, got=f"{said!r}", remedy=failure.remedy) from error
    except ModuleNotFoundError as error:
        package = _PACKAGES.get(error.name or "", error.name)
        raise StoreError(
            f"the driver of this database, {error.name}, is not installed",
            where=where,
            remedy=f"Install it: pip install '{package}'.",
        ) from error
    except NoSuchModuleError as error:
        raise StoreError("this is no URL of a database that ablate knows", where=where, expected=FORMS) from error
    except OSError as error:
        raise StoreError(
            "the folder of the store cannot be made or read",
            where=where,
            got=error.strerror,
            remedy=f"See that you may write there, {_ELSEWHERE}.",
        ) from error

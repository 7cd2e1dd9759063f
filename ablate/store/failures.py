"""Errors of databases and file systems as `StoreError`s with a readable message; a check that files can be locked."""

from __future__ import annotations

import errno
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, NoSuchModuleError

from ablate.errors import StoreError

FORMS = "a path, sqlite:///PATH or postgresql://USER@HOST/NAME"
_ELSEWHERE = "or name another store with --store"
DAMAGED = "the database file is damaged"
REPAIR = "`ablate check-store --store FILE --out NEW` lists what can be read and saves it to a new store."
LONGEST_VALUE = 32 << 20
"""Bytes of a value, or of a row, that is read from SQLite."""
READING_SECONDS = 60
"""Seconds that a transaction that reads may take."""
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
    _Failure("SQLITE_TOOBIG", f"a value of the store is longer than {LONGEST_VALUE >> 20} MiB", REPAIR),
    _Failure(
        "SQLITE_INTERRUPT",
        f"reading the store took longer than {READING_SECONDS} s",
        f"Copy the store to a local disk; {REPAIR}",
    ),
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


_NOT_UTF_8 = "Could not decode to UTF-8"


def of_one_row(error: DBAPIError) -> bool:
    """Whether a database failed at a row that it cannot read, so that it may read others."""
    name = getattr(error.orig, "sqlite_errorname", None) or ""
    return _NOT_UTF_8 in str(error.orig) or name.startswith(("SQLITE_TOOBIG", "SQLITE_CORRUPT"))


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
    except (UnicodeDecodeError, JSONDecodeError) as error:
        raise StoreError(DAMAGED, where=where, got=f"text that cannot be read ({error})", remedy=REPAIR) from error
    except DBAPIError as error:
        too_big = getattr(error.orig, "sqlite_errorname", None) == "SQLITE_TOOBIG"
        if isinstance(error, IntegrityError) or (isinstance(error, DataError) and not too_big):
            raise
        if _NOT_UTF_8 in str(error.orig):
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


_MOUNTS = Path("/proc/self/mountinfo")
_SHARED = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "beegfs", "gpfs"}
_SHARED_IN_USER_SPACE = re.compile(r"fuse\.(sshfs|glusterfs|ceph|s3fs|gcsfuse|rclone|juicefs|goofys|davfs)")
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


def check_locks(folder: Path, where: str) -> None:
    """Refuse a folder whose file system refuses locks, where SQLite would wait forever for a lock.

    Args:
        folder: Where the store is or will be. One that cannot be written is passed over.
        where: The store, for the message.

    Raises:
        StoreError: It has no locks.
    """
    if sys.platform == "win32":  # it has other locks
        return
    import fcntl

    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise StoreError(
                "the file system of the store has no working locks, so that a second writer could destroy it",
                where=where,
                expected="a disk of this machine, or a network file system that is mounted with locks",
                got=error.strerror,
                remedy="Name another store with --store; several machines share one on PostgreSQL,"
                " `--store postgresql://USER@HOST/NAME`.",
            ) from None


def shared_file_system(path: Path, mounts: Path = _MOUNTS) -> str | None:
    """The kind of the network file system that a file is on; None if it is on none, or this is unknown.

    Args:
        path: The file, which need not exist.
        mounts: The system's list of mounts, in the format of `proc(5)`.
    """
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
        place = os.path.realpath(path)
    except OSError:
        return None
    mounted_at, kind = "", ""
    for line in lines:
        mount, _, source = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), mount.split(" ")[4])
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(mounted_at):  # the last of those mounted at one place is on top
            mounted_at, kind = point, source.split(" ")[0]
    return kind if kind in _SHARED or _SHARED_IN_USER_SPACE.match(kind) else None

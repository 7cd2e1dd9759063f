"""Checks the file system of a store: SQLite needs file locks, which exclude concurrent writers."""

from __future__ import annotations

import errno
import os
import re
import sys
import tempfile
from pathlib import Path

from ablate.errors import StoreError

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

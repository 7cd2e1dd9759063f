"""Prepared data on disk: built once, whole or not at all, and checked by checksum whenever it is opened.

`CACHE/KEY/` holds the files of one build and `manifest.json` with their checksums. The key is the hash of what went
in; the fingerprint is half of the key followed by half of the hash of what came out, so that it finds the folder and
also tells data apart that another version of a library prepared otherwise from the same input.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ablate.errors import DataError
from ablate.locations import typed_path
from ablate.spec.base import content_hash
from ablate.tasks.base import Say

MANIFEST = "manifest.json"

_HALF = 32

_READ: dict[tuple[int, int, int, int], str] = {}
"""Device, inode, size and time of the last change of a file to its checksum."""
_A_MOMENT = 10**9
"""Nanoseconds after a change of a file in which another may bear the same time."""


def default_cache() -> Path:
    """The folder in the environment variable ABLATE_CACHE, or the user's cache folder."""
    from platformdirs import user_cache_path

    named = os.environ.get("ABLATE_CACHE")
    return typed_path(named, DataError) if named else user_cache_path("ablate")


def prepare(cache: Path, key: str, build: Callable[[Path], dict[str, Any]], say: Say) -> str:
    """Make sure that prepared data is there and whole.

    Processes that ask for one key at the same time build it once; the others wait. A build that is killed leaves only
    a folder that the next build removes.

    Args:
        cache: The cache folder; made if it is missing.
        key: Content hash of everything that decides the files, 64 hexadecimal digits.
        build: Writes the files into the empty folder that it is given; returns facts about them for the reader of the
            manifest.
        say: Receives progress.

    Returns:
        The fingerprint, 64 hexadecimal digits, for `locate`.

    Raises:
        DataError: The cache cannot be written, or from `build`.
    """
    folder = cache / key[:_HALF]
    try:
        content = _whole(folder)
        if content is None:
            cache.mkdir(parents=True, exist_ok=True)
            with _alone(cache / f"{folder.name}.lock", say):
                content = _whole(folder)
                if content is None:
                    if folder.exists():
                        say(f"The prepared data in {folder} is damaged; preparing it again")
                    _build(folder, build)
                    content = _content(folder)
    except OSError as error:
        raise DataError(
            f"the prepared data cannot be written ({error.strerror or error})",
            where=str(cache),
            expected="a folder that can be written, with space left",
            remedy="Make room or change its permissions, or set ABLATE_CACHE to another folder.",
        ) from error
    return folder.name + content


def folder_of(cache: Path, fingerprint: str) -> Path:
    """Where the prepared data with this fingerprint is, if it is there."""
    return cache / fingerprint[:_HALF]


def locate(cache: Path, fingerprint: str) -> Path:
    """The folder of prepared data, every checksum verified.

    Raises:
        DataError: It is missing, damaged, or not what the fingerprint says.
    """
    folder = folder_of(cache, fingerprint)
    if not folder.exists():
        raise _unfit(folder, "the prepared data is missing")
    if _content(folder) != fingerprint[_HALF:]:
        raise _unfit(folder, "the prepared data has changed since it was prepared")
    return folder


def about(folder: Path) -> dict[str, Any]:
    """The facts that the build of prepared data gave for the reader of the manifest."""
    facts: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["about"]
    return facts


def _alone(lock: Path, say: Say) -> AbstractContextManager[Any]:
    held = FileLock(lock)
    try:
        return held.acquire(timeout=0)
    except Timeout:
        say("Waiting for another process that prepares the same data")
        return held.acquire()


def _build(folder: Path, build: Callable[[Path], dict[str, Any]]) -> None:
    # Only the holder of the lock is here, so what exists is damaged or was left by a process that was killed.
    building = folder.with_name(f"{folder.name}.building")
    for left in (building, folder):
        if left.exists():
            shutil.rmtree(left)
    building.mkdir()
    try:
        about = build(building)
        files = {path.name: _checksum(path) for path in sorted(building.iterdir())}
        manifest = {"about": about, "files": files}
        (building / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        for path in (*building.iterdir(), building):
            _sync(path)
        os.replace(building, folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _whole(folder: Path) -> str | None:
    try:
        return _content(folder)
    except DataError:
        return None


def _content(folder: Path) -> str:
    try:
        files: dict[str, str] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        for name, checksum in files.items():
            if _checksum(folder / name) != checksum:
                raise _unfit(folder / name, "the checksum of the prepared data is off")
        return content_hash(files)[:_HALF]
    except OSError as error:
        raise _unfit(folder, f"the prepared data cannot be read ({error.strerror}: {error.filename})") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _unfit(folder / MANIFEST, "the list of the prepared files cannot be read") from None


def _checksum(path: Path) -> str:
    """Read once by a process for as long as the file is the one that was read: large data is opened several times.

    A file that was changed a moment ago is read again, as a further change might not show in its time.
    """
    now = path.stat()
    state = (now.st_dev, now.st_ino, now.st_size, now.st_ctime_ns)
    if known := _READ.get(state):
        return known
    settled = time.time_ns() - now.st_ctime_ns > _A_MOMENT
    with path.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    if settled:
        _READ[state] = checksum
    return checksum


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unfit(where: Path, problem: str) -> DataError:
    return DataError(problem, where=str(where), remedy="Run the command again: the data is then prepared anew.")

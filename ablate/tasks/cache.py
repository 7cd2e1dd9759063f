"""Prepared data on disk: built once and atomically, and verified by checksum whenever it is opened.

`CACHE/KEY/` holds the files of one build and `manifest.json` with their checksums. The key is a hash of the inputs. The
fingerprint is half of the key followed by half of the hash of the built files: the first half locates the folder, and
the second half differs if another version of a library built other files from the same inputs.

Arrays of tokens are `.npy` files, written in chunks and read by memory mapping, so that memory use stays constant.
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
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ablate.errors import DataError
from ablate.locations import check_regular, read_file
from ablate.spec.base import Spec, content_hash
from ablate.spec.code import Code, CodeReader
from ablate.spec.task import Say

MANIFEST = "manifest.json"

_HALF = 32
_MOST_BYTES = 1 << 26
"""Of a manifest."""

_CHECKSUMS: dict[tuple[int, int, int, int], str] = {}
"""Checksums of files by device, inode, size and time of last change."""
_TIME_RESOLUTION = 10**9
"""Resolution of file times in nanoseconds: a second change within it may leave the time as it was."""


class _UnreadableError(DataError):
    """A file of prepared data is missing, or is not a regular file."""


def users_code(task: Spec) -> dict[str, str]:
    """What to add to the key of a build: the identity of the code of users' kinds in a task; nothing without any."""
    kinds = CodeReader().of(task).content.get("kinds")
    return {"users_code": Code({"kinds": kinds}).identity} if kinds else {}


def prepare(cache: Path, key: str, build: Callable[[Path], dict[str, Any]], say: Say, *, resumes: bool = False) -> str:
    """Build prepared data unless an intact copy exists.

    Concurrent calls with one key build once; the other processes wait. A build that is killed leaves a temporary
    folder, which the next build removes, or continues if it `resumes`.

    Args:
        cache: The cache folder; created if it is missing.
        key: Content hash of all inputs, 64 hexadecimal digits.
        build: Writes the files into the empty folder it receives, and returns facts to store in the manifest.
        say: Called with progress messages.
        resumes: Whether `build` may receive the folder of a build that was interrupted, and continues it.

    Returns:
        The fingerprint, 64 hexadecimal digits, for `locate`.

    Raises:
        DataError: The cache cannot be written, or from `build`.
    """
    folder = cache / key[:_HALF]
    try:
        content = _content_if_intact(folder)
        if content is None:
            cache.mkdir(parents=True, exist_ok=True)
            with _lock(cache / f"{folder.name}.lock", say):
                content = _content_if_intact(folder)
                if content is None:
                    if folder.exists():
                        say(f"The prepared data in {folder} is damaged; preparing it again")
                    _build(folder, build, resumes)
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
    """The folder that holds prepared data with this fingerprint, if it exists."""
    return cache / fingerprint[:_HALF]


def locate(cache: Path, fingerprint: str) -> Path:
    """The folder of prepared data, after verifying every checksum.

    Raises:
        DataError: The data is missing, damaged, or does not match the fingerprint.
    """
    folder = folder_of(cache, fingerprint)
    if not folder.exists():
        raise _damaged_error(folder, "the prepared data is missing")
    if _content(folder) != fingerprint[_HALF:]:
        raise _damaged_error(folder, "the prepared data has changed since it was prepared")
    return folder


def about(folder: Path) -> dict[str, Any]:
    """The facts that `build` returned, read from the manifest."""
    facts: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["about"]
    return facts


def _lock(lock: Path, say: Say) -> AbstractContextManager[Any]:
    from filelock import FileLock, Timeout  # not for commands that prepare nothing

    held = FileLock(lock)
    try:
        return held.acquire(timeout=0)
    except Timeout:
        say("Waiting for another process that is preparing the same data")
        return held.acquire()


def _build(folder: Path, build: Callable[[Path], dict[str, Any]], resumes: bool) -> None:
    # We hold the lock, so an existing folder is damaged or was left by a process that was killed.
    building = folder.with_name(f"{folder.name}.building")
    for leftover in (folder,) if resumes else (building, folder):
        if leftover.exists():
            shutil.rmtree(leftover)
    building.mkdir(exist_ok=True)
    try:
        about = build(building)
        files = {path.name: _checksum(path) for path in sorted(building.iterdir())}
        manifest = {"about": about, "files": files}
        (building / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        for path in (*building.iterdir(), building):
            _sync(path)
        os.replace(building, folder)
        _sync(folder.parent)
    except BaseException as error:
        if not resumes or isinstance(error, Exception):  # an interrupt (Ctrl-C) leaves what can be continued
            shutil.rmtree(building, ignore_errors=True)
        raise


def _content_if_intact(folder: Path) -> str | None:
    try:
        return _content(folder)
    except DataError:
        return None


def _content(folder: Path) -> str:
    try:
        files: dict[str, str] = json.loads(read_file(folder / MANIFEST, _MOST_BYTES, _UnreadableError))["files"]
        for name, checksum in files.items():
            if Path(name).name != name:
                raise ValueError("a file of another folder")
            check_regular(folder / name, _UnreadableError)
            if _checksum(folder / name) != checksum:
                raise _damaged_error(folder / name, "the checksum of the prepared data does not match")
        return content_hash(files)[:_HALF]
    except _UnreadableError as error:
        raise _damaged_error(Path(str(error.where)), f"the prepared data cannot be read ({error.problem})") from None
    except OSError as error:
        raise _damaged_error(folder, f"the prepared data cannot be read ({error.strerror}: {error.filename})") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _damaged_error(folder / MANIFEST, "the manifest of the prepared data cannot be read") from None


def _checksum(path: Path) -> str:
    """SHA-256 of a file, cached per process while the file is unchanged: large data is opened several times.

    The checksum of a recently changed file is not cached, because another change may leave its time as it was.
    """
    now = path.stat()
    state = (now.st_dev, now.st_ino, now.st_size, now.st_ctime_ns)
    if known := _CHECKSUMS.get(state):
        return known
    settled = time.time_ns() - now.st_ctime_ns > _TIME_RESOLUTION
    with path.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    if settled:
        _CHECKSUMS[state] = checksum
    return checksum


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _damaged_error(where: Path, problem: str) -> DataError:
    return DataError(problem, where=str(where), remedy="Run the command again: it prepares the data again.")


class GrowingArray:
    """A one-dimensional `.npy` file that grows by appending; valid only after the `with` block has ended.

    Args:
        path: The file to write.
        dtype: Data type of its elements.
        size: Number of elements to keep of a file that was not completed; what was written after them is removed.
    """

    def __init__(self, path: Path, dtype: Any, size: int = 0) -> None:
        self._file = path.open("r+b" if size else "wb")
        self._dtype = np.dtype(dtype)
        self.size = size
        self._write_header()
        self._header = self._file.tell()
        self._file.truncate(self._header + size * self._dtype.itemsize)
        self._file.seek(0, os.SEEK_END)

    def append(self, values: NDArray[Any]) -> None:
        """Append elements."""
        self._file.write(values.astype(self._dtype, copy=False).tobytes())
        self.size += values.size

    def sync(self) -> None:
        """Write everything to the disk, so that `size` elements survive a crash of the machine."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None:
                self._file.seek(0)
                self._write_header()
                assert self._file.tell() == self._header, "numpy pads the header for a growing first axis"

    def _write_header(self) -> None:
        descr = npy.dtype_to_descr(self._dtype)
        npy.write_array_header_1_0(self._file, {"descr": descr, "fortran_order": False, "shape": (self.size,)})


def open_array(path: Path) -> NDArray[Any]:
    """The whole numbers in a file of prepared data, memory-mapped.

    Raises:
        DataError: It holds something else, though its checksum is that of the manifest.
    """
    try:
        numbers: NDArray[Any] = np.load(path, mmap_mode="r").view(np.ndarray)
    except (ValueError, EOFError, SyntaxError, RecursionError, MemoryError):
        raise _damaged_error(path, "this is not an array of numbers") from None
    if numbers.dtype.kind not in "iu":
        raise _damaged_error(path, f"this is an array of {numbers.dtype}, not of whole numbers")
    return numbers


def spread(count: int, most: int) -> NDArray[np.int64]:
    """At most `most` evenly spaced indices from 0 to count - 1."""
    chosen = min(count, most)
    return np.arange(chosen, dtype=np.int64) * count // max(1, chosen)


def token_dtype(vocabulary: int) -> type[np.unsignedinteger[Any]]:
    """The smallest integer type that holds the ids of a vocabulary."""
    return np.uint16 if vocabulary <= 1 << 16 else np.uint32

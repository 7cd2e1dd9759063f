"""Paths as people type them, and the folders that ablate uses besides that of a space: for its cache, for scratch."""

from __future__ import annotations

import errno
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ablate.errors import AblateError

DEFAULT_STORE = "studies/ablate.db"
"""The store of a command that names none."""
SKILL = Path(__file__).parent / "skill" / "SKILL.md"
"""How an assistant asks a question well: the instructions of the MCP server, and a file that a user can copy."""
MOST_ENTRIES = 200_000
"""Files and folders that are searched through, which takes seconds; a whole disk would take minutes."""
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP}
"""What a file system says of a path that is merely not there."""


def typed_path(text: str | Path, refused: type[AblateError] = AblateError) -> Path:
    """The path that a person typed, with `~` written out. Whether a file is there makes no difference.

    Raises:
        AblateError: No file can be there, or the folder that it is in cannot be read.
    """
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # the user after `~` is not known, or the own home folder is not
        user = Path(text).parts[0]
        raise refused(
            f"there is no home folder `{user}`", where=str(text), remedy="Write the folder out instead of `~`."
        ) from None
    try:
        path.stat()
    except UnicodeEncodeError as error:
        raise refused(
            f"file names of this locale are {error.encoding} and cannot hold {str(path)[error.start]!r}",
            where=ascii(str(text)),
            remedy="Set LC_ALL to a UTF-8 locale such as C.UTF-8, or PYTHONUTF8=1.",
        ) from None
    except ValueError:
        raise refused(
            "a path holds no NUL character", where=repr(str(text)), remedy="Name the path without it."
        ) from None
    except OSError as error:
        if error.errno not in _ABSENT:
            problem = f"this cannot be looked up ({os.strerror(error.errno or 0)})"
            raise refused(problem, where=str(text), remedy="Check the path.") from None
    return path


def cache_folder() -> Path:
    """The folder of prepared data: what the environment variable ABLATE_CACHE names, else the user's cache folder.

    Raises:
        AblateError: There is neither, as in a container without HOME whose user has no name.
    """
    if named := os.environ.get("ABLATE_CACHE"):
        return typed_path(named)
    from platformdirs import user_cache_path

    try:
        return user_cache_path("ablate")
    except RuntimeError:
        raise AblateError(
            "this user has no home folder for prepared data",
            where="HOME",
            remedy="Set ABLATE_CACHE to a folder, or give one with --cache.",
        ) from None


def check_home(library: str, where: str) -> None:
    """Refuse to start a library that looks for the user's home folder where there is none.

    Args:
        library: Its name.
        where: What asked for it.

    Raises:
        AblateError: The user has no home folder.
    """
    try:
        Path.home()
    except RuntimeError:
        raise AblateError(
            f"{library} needs a home folder, and this user has none",
            where=where,
            remedy="Set HOME to a folder that can be written to.",
        ) from None


def real_path(path: str | Path) -> Path:
    """The absolute path with links followed.

    Links that lead in a circle are kept, so no file is there; `Path.resolve` raises RuntimeError in Python 3.12.
    """
    return Path(os.path.realpath(path))


def files_matching(folder: Path, pattern: str) -> Iterator[Path]:
    """The files below a folder that a glob pattern matches; none if the pattern is invalid, such as `.` or `a**`.

    Raises:
        AblateError: The pattern asks for any depth, and the folder holds more than `MOST_ENTRIES`.
    """
    if "**" in pattern:
        _check_searchable(folder)
    try:
        yield from (file for file in folder.glob(pattern) if file.is_file())
    except (ValueError, IndexError, NotImplementedError):  # `a**`, `.` and `/x` in Python 3.11
        return


def _check_searchable(folder: Path) -> None:
    seen = 0
    for _, folders, files in os.walk(folder):
        seen += len(folders) + len(files)
        if seen > MOST_ENTRIES:
            raise AblateError(
                "this folder holds too much to be searched at any depth",
                where=str(folder),
                expected=f"at most {MOST_ENTRIES:,} files and folders",
                remedy="Name a folder further down.",
            )


def temporary_folder() -> str:
    """The folder for temporary files: what TMPDIR names, else that of the system.

    Raises:
        AblateError: No such folder can be written to.
    """
    try:
        return tempfile.gettempdir()
    except OSError:
        raise AblateError(
            "no folder for temporary files can be written to",
            where="TMPDIR",
            got=repr(os.environ.get("TMPDIR", "")),
            remedy="Set TMPDIR to a folder that can be written to.",
        ) from None


def read_file(path: Path, most: int, refused: type[AblateError] = AblateError, *, noun: str = "a file") -> bytes:
    """The content of a file that a person named.

    Args:
        path: The file; a link to one is followed.
        most: Bytes that it may have, which is asked before it is read.
        noun: What the file is, for messages.

    Raises:
        AblateError: It is not a regular file (a pipe or a device may never end), is too large, or cannot be read.
    """
    with open_regular(path, refused) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(most + 1) if size <= most else b""
    if size > most or len(content) > most:
        raise refused(
            "this file is too large",
            where=str(path),
            expected=f"{noun} of at most {most:,} bytes",
            got=f"{max(size, len(content)):,}",
            remedy="Check that this is the right file.",
        )
    return content


def write_file(path: Path, content: bytes) -> None:
    """Write a file that a person named.

    Raises:
        OSError: It cannot be written, or it is a pipe that nothing reads, which would block.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "nothing reads this pipe", str(path)) from None
        raise
    with os.fdopen(descriptor, "wb") as file:
        if sys.platform != "win32":
            os.set_blocking(descriptor, True)
        file.write(content)


def check_regular(path: Path, refused: type[AblateError] = AblateError) -> None:
    """Refuse a path that is not a regular file that can be opened, before a library opens it.

    Raises:
        AblateError: It is not.
    """
    open_regular(path, refused).close()


def open_regular(path: Path, refused: type[AblateError]) -> BinaryIO:
    """A regular file, opened for reading; a pipe does not block.

    Raises:
        AblateError: It is missing, cannot be read, or is not a regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise refused("there is no such file", where=str(path), remedy="Check the path.") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise refused(f"this cannot be read ({why})", where=str(path), remedy="Check the path.") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise refused(
            "this is not a regular file",
            where=str(path),
            expected="a file on a disk: a folder, a pipe or a device is not read",
            remedy="Save it to a file first.",
        )
    return os.fdopen(descriptor, "rb")

"""Paths as people type them, and the folders that ablate uses besides that of a space: for its cache, for scratch."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from ablate.errors import AblateError

DEFAULT_STORE = "studies/ablate.db"
"""The store of a command that names none."""
SKILL = Path(__file__).parent / "skill" / "SKILL.md"
"""How an assistant asks a question well: the instructions of the MCP server, and a file that a user can copy."""
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP}
"""What a file system says of a path that is merely not there."""


def typed_path(text: str | Path, refused: type[AblateError] = AblateError) -> Path:
    """The path that a person typed, with `~` written out. Whether a file is there makes no difference.

    Args:
        text: What was typed.
        refused: The error to raise.

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
        raise refused("a path holds no NUL character", where=repr(str(text)), remedy="Take it out.") from None
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

"""Paths as people type them: `~` for a home folder, and names that a file system may not be able to hold."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from ablate.errors import AblateError

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
            f"there is no home folder `{user}`", where=str(text), remedy="Write the folder out in place of `~`."
        ) from None
    try:
        path.stat()
    except ValueError:
        raise refused("a path holds no NUL character", where=repr(str(text)), remedy="Take it out.") from None
    except OSError as error:
        if error.errno not in _ABSENT:
            problem = f"this cannot be looked up ({os.strerror(error.errno or 0)})"
            raise refused(problem, where=str(text), remedy="Check the path.") from None
    return path

"""How the process gets memory for tensors on a CPU."""

from __future__ import annotations

import ctypes
from contextlib import suppress

# Names and numbers of glibc's malloc.h.
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _TOP_PAD = -3, -1, -2
_LARGEST = 2**31 - 1


def keep_freed_memory() -> None:
    """Let the C library keep what is freed, for the next step to take again, in place of returning it to the system.

    glibc returns large blocks at every free and asks for them anew, pages that have to be cleared one by one; kept,
    an eager run on the CPU is up to three times faster. Elsewhere than with glibc this does nothing.
    """
    with suppress(AttributeError, OSError):  # macOS and musl have no mallopt
        mallopt = ctypes.CDLL(None).mallopt
        for setting, value in ((_MMAP_THRESHOLD, _LARGEST), (_TRIM_THRESHOLD, _LARGEST), (_TOP_PAD, 1 << 26)):
            mallopt(setting, value)

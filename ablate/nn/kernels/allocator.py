"""How the process gets memory for tensors on a CPU."""

from __future__ import annotations

import ctypes
from contextlib import suppress

# Names and numbers of glibc's malloc.h.
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _TOP_PAD = -3, -1, -2
_LARGEST = 2**31 - 1
_LARGEST_ONCE = 1 << 25
"""The most that older versions take for the first."""


def keep_freed_memory() -> None:
    """Let the C library keep what is freed, for the next step to take again, in place of returning it to the system.

    glibc returns large blocks at every free and asks for them anew, pages that have to be cleared one by one; kept,
    an eager run on the CPU is up to three times faster. Elsewhere than with glibc this does nothing.
    """
    with suppress(AttributeError, OSError, TypeError):  # only glibc has mallopt, and Windows no library of this name
        mallopt = ctypes.CDLL(None).mallopt
        if mallopt(_MMAP_THRESHOLD, _LARGEST) or mallopt(_MMAP_THRESHOLD, _LARGEST_ONCE):
            mallopt(_TRIM_THRESHOLD, _LARGEST)
            mallopt(_TOP_PAD, 1 << 26)

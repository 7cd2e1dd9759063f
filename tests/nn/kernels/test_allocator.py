"""Whether the C library reuses freed memory, by the number of page faults."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PAGES = """
import resource, sys
from ablate.nn.kernels.processor import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
for turn in range(11):
    if turn == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = bytearray(b"x") * 40_000_000
    del block
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages(how: str) -> int:
    """Pages that ten blocks of 40 MB took after a first one."""
    done = subprocess.run([sys.executable, "-c", PAGES, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="there is nothing to set")
def test_freed_memory_is_taken_again() -> None:
    usual, kept = pages("usual"), pages("kept")
    assert kept < usual / 4  # how many there are depends on their size

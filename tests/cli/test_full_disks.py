"""Cache, temporary files and output on a full disk: a clear message, and the same command continues later."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import Finished, Workplace, wait_for

SMALL_DISK = "mount -t tmpfs -o size=256k none $0 && head -c 262144 /dev/zero > $0/filler; echo made; read end"
"""Mounts a disk that is full, which only this shell and who joins it see, and waits."""
CLONE_FS = 0x200
"""The root and the current folder, in `linux/sched.h`; a process that shares them cannot join other mounts."""


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None, reason="makes a small disk"
)
def test_a_full_disk_is_reported_and_the_same_command_continues(
    place: Workplace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    disk = tmp_path_factory.mktemp("disk")
    command = ("study", place.space(steps=2, seeds=1), "--workers", "1", "--cache", str(disk / "cache"))
    shell = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", SMALL_DISK, disk],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert shell.stdin is not None
    assert shell.stdout is not None
    shell.stdout.readline()
    filler = Path(f"/proc/{shell.pid}/root{disk}/filler")
    if not filler.exists():
        pytest.skip(f"no disk can be made here: {shell.communicate()[1]}")

    def join() -> None:
        os.setpgid(0, 0)
        library = ctypes.CDLL(None)
        assert library.unshare(CLONE_FS) == 0  # with threads that a package has started in this process
        assert library.setns(os.open(f"/proc/{shell.pid}/ns/mnt", os.O_RDONLY), 0) == 0

    def run(*more: str, stdout: int | None = None) -> Finished:
        return wait_for(place.fork(*command, *more, stdout=stdout, place=join, TMPDIR=str(disk)))

    first = run()
    filler.unlink()
    with open("/dev/full", "wb") as full:
        second = run(stdout=full.fileno())
    third = run("--json")
    shell.communicate("")

    assert first.code == 2
    assert "the prepared data cannot be written (No space left on device)" in first.err
    assert "set ABLATE_CACHE to another folder" in first.err
    assert second.code == 2  # standard output itself is on the full disk
    assert "standard output: what was printed cannot be written (No space left on device)" in second.err
    assert third.code == 0, third.err
    assert '"failed": 0' in third.out
    assert len(place.trials("finished")) == 3
    assert "Traceback" not in first.err + second.err
    assert list(disk.iterdir()) == []

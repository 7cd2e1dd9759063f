"""Cache, temporary files and output on a full disk: a clear message, and the same command continues later."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from cli_runs import ABLATE, Workplace

COMMANDS = """
set -e
mount -t tmpfs -o size=256k none {disk}
head -c 262144 /dev/zero > {disk}/filler || true
export TMPDIR={disk}
{ablate} study {space} --workers 1 --cache {disk}/cache > first.out 2> first.err || echo $? > first.code
rm {disk}/filler
{ablate} study {space} --workers 1 --cache {disk}/cache > /dev/full 2> second.err || echo $? > second.code
{ablate} study {space} --workers 1 --cache {disk}/cache --json > third.out
"""


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None, reason="makes a small disk"
)
def test_a_full_disk_is_reported_and_the_same_command_continues(
    place: Workplace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    disk = tmp_path_factory.mktemp("disk")
    script = COMMANDS.format(disk=disk, ablate=ABLATE, space=place.space(steps=2, seeds=1))
    (place.folder / "script").write_text(script)
    done = place.shell("unshare --mount sh script")
    if "unshare" in done.err or "mount" in done.err:
        pytest.skip(f"no disk can be made here: {done.err}")
    assert done.code == 0, done.err

    def told(name: str) -> str:
        return (place.folder / name).read_text()

    assert told("first.code").strip() == "2"
    assert "the prepared data cannot be written (No space left on device)" in told("first.err")
    assert "set ABLATE_CACHE to another folder" in told("first.err")
    assert told("second.code").strip() == "2"  # standard output itself is on the full disk
    assert "No space left on device" in told("second.err")
    assert '"failed": 0' in told("third.out")
    assert len(place.trials("finished")) == 3
    for name in ("first.err", "second.err"):
        assert "Traceback" not in told(name)
    assert list(Path(disk).iterdir()) == []

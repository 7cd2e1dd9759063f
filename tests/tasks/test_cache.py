"""Prepared data is built once, whole or not at all, and never trusted without its checksums."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ablate.errors import DataError
from ablate.tasks.cache import MANIFEST, locate, open_array, prepare, token_dtype

KEY = "0123456789abcdef" * 4

SLOW = f"""
import sys, time
from pathlib import Path
from ablate.tasks.cache import prepare

def build(folder):
    print("building", flush=True)
    (folder / "data").write_bytes(b"half")
    time.sleep(float(sys.argv[2]))
    (folder / "data").write_bytes(b"whole")
    return {{}}

print(prepare(Path(sys.argv[1]), "{KEY}", build, lambda line: print(line, flush=True)))
"""


def start(cache: Path, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", SLOW, str(cache), str(seconds)], stdout=subprocess.PIPE, text=True)


class Builder:
    def __init__(self, data: bytes = b"whole") -> None:
        self.data = data
        self.calls = 0

    def __call__(self, folder: Path) -> dict[str, Any]:
        self.calls += 1
        assert list(folder.iterdir()) == []
        (folder / "data").write_bytes(self.data)
        (folder / "more").write_bytes(b"more")
        return {"reader": "told"}

    def prepare(self, cache: Path) -> tuple[str, list[str]]:
        lines: list[str] = []
        return prepare(cache, KEY, self, lines.append), lines


def test_second_call_finds_what_the_first_built(tmp_path: Path) -> None:
    builder = Builder()
    cache = tmp_path / "made" / "here"
    fingerprint, _ = builder.prepare(cache)
    assert builder.prepare(cache) == (fingerprint, [])
    assert builder.calls == 1
    assert (locate(cache, fingerprint) / "data").read_bytes() == b"whole"
    assert len(fingerprint) == 64


def test_fingerprint_differs_for_other_output_of_the_same_input(tmp_path: Path) -> None:
    first, _ = Builder().prepare(tmp_path / "first")
    second, _ = Builder(b"otherwise").prepare(tmp_path / "second")
    assert first != second
    with pytest.raises(DataError, match="has changed since it was prepared"):
        locate(tmp_path / "second", first)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda folder: (folder / "data").write_bytes(b"whale"),
            r"data: the checksum of the prepared data does not match",
        ),
        (lambda folder: (folder / "data").write_bytes(b""), r"data: the checksum of the prepared data does not match"),
        (
            lambda folder: (folder / "more").unlink(),
            r"more: the prepared data cannot be read \(there is no such file\)",
        ),
        (
            lambda folder: (folder / MANIFEST).unlink(),
            r"manifest.json: the prepared data cannot be read \(there is no such f",
        ),
        (lambda folder: (folder / "manifest.json").write_text('{"files": '), r"manifest of the prepared data"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), r"manifest of the prepared data"),
        (lambda folder: (folder / "manifest.json").write_bytes(b"\xff"), r"manifest of the prepared data"),
    ],
)
def test_damage_is_refused_by_locate_and_mended_by_prepare(tmp_path: Path, damage: Any, message: str) -> None:
    builder = Builder()
    fingerprint, _ = builder.prepare(tmp_path)
    damage(locate(tmp_path, fingerprint))
    with pytest.raises(DataError, match=message):
        locate(tmp_path, fingerprint)
    again, lines = builder.prepare(tmp_path)
    assert again == fingerprint
    assert builder.calls == 2
    assert "damaged" in lines[0]
    assert (locate(tmp_path, fingerprint) / "more").read_bytes() == b"more"


def test_settled_data_is_read_once_and_again_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, read = hashlib.file_digest, []
    monkeypatch.setattr("hashlib.file_digest", lambda file, name: read.append(file.name) or digest(file, name))
    monkeypatch.setattr("ablate.tasks.cache._TIME_RESOLUTION", 10**15)
    fingerprint, _ = Builder().prepare(tmp_path)
    read.clear()
    locate(tmp_path, fingerprint)
    assert len(read) == 2, "changed a moment ago: a further change might bear the same time"
    monkeypatch.setattr("ablate.tasks.cache._TIME_RESOLUTION", -1)
    locate(tmp_path, fingerprint)
    read.clear()
    folder = locate(tmp_path, fingerprint)
    assert read == []
    time.sleep(0.02)  # longer than a tick of the clock of the file system
    (folder / "data").write_bytes(b"whale")
    with pytest.raises(DataError, match="the checksum of the prepared data does not match"):
        locate(tmp_path, fingerprint)


def test_missing_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the prepared data is missing"):
        locate(tmp_path, KEY)


def test_failed_build_leaves_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    def fails(folder: Path) -> dict[str, Any]:
        (folder / "data").write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(DataError, match=r"cannot be written \(No space left on device\).*ABLATE_CACHE"):
        prepare(tmp_path, KEY, fails, lambda line: None)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    Builder().prepare(tmp_path)


@pytest.mark.parametrize("resumes", [False, True])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_only_what_is_interrupted_and_resumes_is_kept(
    tmp_path: Path, error: type[BaseException], resumes: bool
) -> None:
    """What has failed would fail again from where it was, or be trusted though it is wrong."""

    def ends(folder: Path) -> dict[str, Any]:
        (folder / "data").write_bytes(b"half")
        raise error

    with pytest.raises(error):
        prepare(tmp_path, KEY, ends, lambda line: None, resumes=resumes)
    kept = [path.name for path in tmp_path.glob("*.building/*")]
    assert kept == (["data"] if resumes and error is KeyboardInterrupt else [])


def test_cache_that_cannot_be_made_is_one_paragraph(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot be written .*ABLATE_CACHE"):
        Builder().prepare(tmp_path / "file" / "cache")


def test_killed_build_leaves_nothing_that_is_trusted(tmp_path: Path) -> None:
    process = start(tmp_path, 800)
    assert process.stdout is not None
    with process.stdout as lines:
        assert lines.readline() == "building\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert [path.name for path in tmp_path.glob("*.building")], "the kill came in the middle"
    builder = Builder()
    fingerprint, _ = builder.prepare(tmp_path)
    assert builder.calls == 1
    assert (locate(tmp_path, fingerprint) / "data").read_bytes() == b"whole"
    assert not list(tmp_path.glob("*.building"))


def test_processes_that_start_together_build_once(tmp_path: Path) -> None:
    processes = [start(tmp_path, 1.5) for _ in range(4)]
    outputs = [process.communicate(timeout=800)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert sum("building" in lines for lines in outputs) == 1
    assert len({lines[-1] for lines in outputs}) == 1
    assert (locate(tmp_path, outputs[0][-1]) / "data").read_bytes() == b"whole"


def test_waiting_process_takes_over_when_the_builder_is_killed(tmp_path: Path) -> None:
    builder, waiter = start(tmp_path, 800), None
    assert builder.stdout is not None
    with builder.stdout as lines:
        assert lines.readline() == "building\n"
        waiter = start(tmp_path, 0)
        assert waiter.stdout is not None
        assert "Waiting for another process" in waiter.stdout.readline()
        time.sleep(0.1)
        builder.kill()
        builder.wait()
    output, _ = waiter.communicate(timeout=800)
    assert output.splitlines()[0] == "building"
    locate(tmp_path, output.splitlines()[-1])


def npy_of(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


_NPY = b"\x93NUMPY\x01\x00"
_FORGED = {
    "a pickle": pickle.dumps(Path("x")),
    "an array of objects": npy_of(np.array([Path("x")], dtype=object)),
    "fractions": npy_of(np.array([0.5, float("nan")])),
    "no bytes": b"",
    "half a header": _NPY,
    "a header of 2 GB": b"\x93NUMPY\x02\x00" + (2**31 - 1).to_bytes(4, "little") + b"{",
    "a header of code": _NPY + (118).to_bytes(2, "little") + b"exit(3)".ljust(117) + b"\n",
    "more than it has": npy_of(np.arange(9))[:-8],
}
"""Files whose checksum someone has put into the manifest."""


@pytest.mark.parametrize("forged", _FORGED)
def test_a_file_that_is_no_array_is_refused_though_its_checksum_is_right(tmp_path: Path, forged: str) -> None:
    (tmp_path / "train.npy").write_bytes(_FORGED[forged])
    with pytest.raises(DataError, match=r"train\.npy: this is (not an array of numbers|an array of float64)"):
        open_array(tmp_path / "train.npy")


@pytest.mark.parametrize("name", ["../outside", "/dev/zero", "pipe"])
def test_a_manifest_names_only_files_beside_it(tmp_path: Path, name: str) -> None:
    fingerprint, _ = Builder().prepare(tmp_path)
    folder = locate(tmp_path, fingerprint)
    (tmp_path / "outside").write_text("text")
    os.mkfifo(folder / "pipe")
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][name] = hashlib.sha256(b"text").hexdigest()
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=r"manifest of the prepared data cannot be read|not a regular file"):
        locate(tmp_path, fingerprint)


@pytest.mark.parametrize(("vocabulary", "kept"), [(1, np.uint16), (1 << 16, np.uint16), ((1 << 16) + 1, np.uint32)])
def test_ids_take_two_bytes_each_as_long_as_they_fit(vocabulary: int, kept: type) -> None:
    assert token_dtype(vocabulary) is kept
    assert np.iinfo(kept).max >= vocabulary - 1

"""A small part of `python -m benchmarks hostile`: changed spaces, blocks, claims, data, stores and command lines."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st

from benchmarks import hostile
from benchmarks.hostile import campaign, run_case, sample, tiny_store
from benchmarks.hostile_cases import Case, cases
from benchmarks.hostile_printing import NAMED, printing_cases

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a case is a forked process")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny_store(tmp_path_factory.mktemp("tiny"))


def test_changed_input_ends_in_a_sentence_or_a_result(store: bytes, tmp_path: Path) -> None:
    tally = sample(cases(store), 12, 20261122, tmp_path, patience=120.0)
    assert tally.tried == 12
    assert tally.worst == []


def test_no_name_and_no_stream_ends_in_a_traceback(tmp_path: Path) -> None:
    named = tiny_store(tmp_path / "named", NAMED)
    tally = sample(printing_cases(named), 12, 20261125, tmp_path / "cases", patience=120.0)
    assert tally.kinds.keys() == {"name", "stream"}
    assert tally.worst == []


def test_a_store_that_a_command_changes_is_a_loss(store: bytes, tmp_path: Path) -> None:
    changed = Case("store", ("kinds", "--plugin", "plugin.py"), {"studies/ablate.db": store, "plugin.py": CHANGE})
    assert run_case(changed, tmp_path / "changed", seconds=120.0).verdict(changed) == "lost"
    assert os.getcwd() != str(tmp_path)


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        ("tried", b""),
        ("lost", b"import pathlib\npathlib.Path('../escaped').touch()"),
        ("hangs", b"while True: pass"),
        ("tracebacks", b"import os\nos._exit(7)"),
    ],
)
def test_the_exit_code_is_1_if_any_count_but_tried_is_not_0(
    verdict: str,
    text: bytes,
    store: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    planted = Case("line", ("kinds", "--plugin", "plugin.py"), {"plugin.py": text})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # what went wrong stays for a look
    monkeypatch.setattr(hostile, "tiny_store", lambda _: store)
    monkeypatch.setattr(hostile, "preload", lambda *_: None)
    monkeypatch.setattr(hostile, "cases", lambda store, kinds: st.just(planted))
    monkeypatch.setattr(hostile, "OTHERS", ())
    monkeypatch.setattr(hostile, "SECONDS", 1.5 if verdict == "hangs" else 120.0)
    code = campaign(["--cases", "1", "--json"])
    printed = capsys.readouterr()
    counts = json.loads(printed.out)
    assert list(counts) == ["tried", "lost", "hangs", "tracebacks"]
    assert counts == {"tried": 1, "lost": 0, "hangs": 0, "tracebacks": 0, verdict: 1}
    assert code == (verdict != "tried")
    assert printed.err.startswith("" if verdict == "tried" else f"{verdict}: ")
    if verdict == "hangs":
        found = re.search(r"no end after [\d.]+ s: ([\d.]+) s on a core", printed.err)
        assert found
        assert float(found[1]) > 0


CHANGE = b"from pathlib import Path\nPath('studies/ablate.db').write_bytes(b'')"

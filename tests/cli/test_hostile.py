"""A small part of `python -m benchmarks hostile`: changed spaces, blocks, claims, data, stores and command lines."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks.hostile import Case, cases, run_case, sample, tiny_store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a case is a forked process")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny_store(tmp_path_factory.mktemp("tiny"))


def test_changed_input_ends_in_a_sentence_or_a_result(store: bytes, tmp_path: Path) -> None:
    tally = sample(cases(store), 12, 20261122, tmp_path, patience=120.0)
    assert tally.tried == 12
    assert tally.worst == []


def test_the_campaign_sees_hangs_tracebacks_and_losses(store: bytes, tmp_path: Path) -> None:
    """Commands that misbehave in every known way: the campaign recognises each kind of failure."""
    plugins = {
        "hangs": "import time\ntime.sleep(60)",
        "tracebacks": "import os\nos._exit(7)",
        "lost": "import pathlib\npathlib.Path('../escaped').touch()",
        "tried": "",
    }
    for verdict, text in plugins.items():
        case = Case("line", ("kinds", "--plugin", "plugin.py"), {"plugin.py": text.encode()})
        assert run_case(case, tmp_path / verdict, 4.0 if verdict == "hangs" else 120.0).verdict(case) == verdict
    changed = Case("store", ("kinds", "--plugin", "plugin.py"), {"studies/ablate.db": store, "plugin.py": CHANGE})
    assert run_case(changed, tmp_path / "changed", seconds=120.0).verdict(changed) == "lost"
    assert os.getcwd() != str(tmp_path)


CHANGE = b"from pathlib import Path\nPath('studies/ablate.db').write_bytes(b'')"

"""A small part of `python -m benchmarks faults`, and what it would see."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ablate.store import Environment, TrialRecord, TrialState
from benchmarks.faults import compare

ROOT = Path(__file__).parents[2]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TRIAL = TrialRecord(
    key="k" * 64,
    variant_hash="v",
    seed=0,
    state=TrialState.FINISHED,
    metrics={"val_loss": 2.0},
    steps=9,
    seconds=1.0,
    tokens=90,
    flops=1e6,
    stopped_at=None,
    reason="",
    data_fingerprint="d",
    started_at=NOON,
    finished_at=NOON,
    environment=Environment({"python": "3.x"}, "cpu: none", "here", None, None, ""),
)


def test_the_campaign_sees_what_was_lost_trained_twice_or_differs() -> None:
    alone = {TRIAL.key: TRIAL}
    last_digit = {TRIAL.key: replace(TRIAL, metrics={"val_loss": 2.0 + 1e-9})}
    other = {TRIAL.key: replace(TRIAL, metrics={"val_loss": 2.01})}
    later = {TRIAL.key: replace(TRIAL, finished_at=NOON.replace(hour=13))}
    assert compare({}, alone, alone) == compare(alone, alone, alone) == compare({}, last_digit, alone) == []
    assert compare({}, {}, alone) == ["kkkkkkkk is missing"]
    assert compare(alone, {}, alone) == ["kkkkkkkk is missing", "kkkkkkkk was trained twice"]
    assert compare(alone, later, alone) == ["kkkkkkkk was trained twice"]
    assert compare({}, other, alone) == ["kkkkkkkk: val_loss is 2.01 and was 2.0"]


@pytest.mark.skipif(sys.platform != "linux", reason="drivers are forked")
def test_a_driver_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "faults", "--kills", "1", "--ways", "single", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"tried": 1, "lost": 0, "hangs": 0, "tracebacks": 0}

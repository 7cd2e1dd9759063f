"""Ray's memory monitor, on a machine of its own that always seems to use too much: it kills whatever trains."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import Workplace

pytest.importorskip("ray")


def test_workers_that_are_killed_for_memory_cost_their_trials_an_attempt_and_nobody_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.001")  # of the machine
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "8000")  # so that most are killed while they train
    place = Workplace(tmp_path, tmp_path / "cache")
    space = place.space("killed", steps=2500, seeds=1)
    told = place.run("study", space, "--engine", "ray")
    assert told.code in (0, 3), told.err
    assert "its worker was killed because its node ran out of memory; trained again" in told.out + told.err

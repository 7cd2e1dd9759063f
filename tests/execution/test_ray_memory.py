"""Ray's memory monitor, on a machine of its own that always seems to use too much: it kills whatever trains."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import Workplace, wait_for

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(900)


def test_workers_that_are_killed_for_memory_cost_an_attempt_and_not_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.001")  # of the machine
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "3000")
    place = Workplace(tmp_path, tmp_path / "cache")
    space = place.space("killed", steps=10**7, seeds=1)
    file = place.folder / space
    file.write_text(file.read_text().replace("  norm: {rms: {}, none: {block.norm: none}}\n", ""))  # each kill costs
    told = wait_for(place.start("study", space, "--engine", "ray"), timeout=800)
    assert told.code == 3, told.err
    assert len(place.trials("failed")) == 2, "all of them"
    assert "its worker was killed because its node ran out of memory; trained again" in told.out + told.err

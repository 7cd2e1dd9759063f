"""The machines on which trials ended, and the trials that failed or were restarted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from fake_store import fake_store

from ablate.analysis.status import read_workers
from ablate.store.records import TrialState, WorkerRecord


def test_trials_are_counted_where_they_ended_and_failures_are_reported() -> None:
    made = fake_store({"baseline": ({}, 10), "x": ({"s": "x"}, 5)})
    for seed in (0, 1, 2):
        made.add("baseline", seed, {"val_loss": 1.0}, seconds=2.0, tokens=100)
        state = TrialState.DIVERGED if seed == 1 else TrialState.FINISHED
        made.add("x", seed, {}, state=state, seconds=1.0, tokens=10)
    *others, last = made.record.planned  # what confirms trained on a machine too
    made.record = replace(made.record, planned=tuple(others), confirm_trials=(last,))
    places = {"baseline/0": ("a", 1), "baseline/1": ("a", 1), "baseline/2": ("b", 2), "x/1": ("b", 1)}
    for key, (host, attempts) in places.items():
        made.trial_records[key] = replace(
            made.trial_records[key],
            worker=WorkerRecord(host, "cpu", 7),
            attempts=attempts,
            finished_at=None if key == "x/1" else datetime(2026, 1, 5, 9 - attempts, int(key[-1]), tzinfo=UTC),
        )
    loads, failures = read_workers(made, made.record.name)
    counts = {one.host: (one.trials, one.diverged, one.failed) for one in loads}
    assert counts["a"] == (2, 0, 0)
    assert counts["b"] == (2, 1, 0)
    assert sum(one.trials for one in loads) == 6
    assert next(one.tokens_per_second for one in loads if one.host == "a") == pytest.approx(50.0)
    assert [time.minute for one in loads if one.host == "a" for time in one.ended_at] == [0, 1]
    assert [len(one.ended_at) for one in loads if one.host == "b"] == [1], "of the other nobody knows"
    assert {(one.variant, one.seed, one.state, one.attempts) for one in failures} == {
        ("baseline", 2, TrialState.FINISHED, 2),
        ("x", 1, TrialState.DIVERGED, 1),
    }

"""Throughput and time left, computed from a store, and their text."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from ablate.analysis.status import status_of
from ablate.render.terminal.status import print_status, status_json
from ablate.store.activity import Activity, DriverRecord, FailedTrial, RunningTrial
from ablate.store.records import WorkerRecord

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
DRIVER = DriverRecord(
    study="s",
    host="head",
    pid=1,
    since=AT - timedelta(hours=2),
    heartbeat=AT - timedelta(seconds=5),
    alive=True,
    planned=100,
    settled=40,
    failed=2,
    running=2,
    retries=1,
    ended=5,
    flops=5e15,
    begin=AT - timedelta(minutes=10),
)
RUNNING = RunningTrial(
    "ab" * 32, "s", "norm=none", 3, 50, 100, 2.5, 1, AT - timedelta(minutes=4), WorkerRecord("gpu-3", "cuda: H200", 77)
)


def active(*drivers: DriverRecord, running: tuple[RunningTrial, ...] = ()) -> Activity:
    return Activity(AT, drivers, running)


def shown(activity: Activity, width: int = 140) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        print_status(status_of(activity), console)
    return capture.get()


def test_throughput_and_time_left() -> None:
    waits = replace(RUNNING, step=None, worker=None, attempts=2)
    (study,) = status_of(active(DRIVER, running=(RUNNING, waits))).studies
    assert study.trials_per_hour == pytest.approx(30)
    assert study.flops_per_second == pytest.approx(5e15 / 600)
    assert study.left == 58
    # 58 trials, of which one is half done, at one in two minutes
    assert study.seconds_left == pytest.approx(57.5 * 120)


def test_no_time_is_estimated_before_a_trial_has_ended() -> None:
    (study,) = status_of(active(replace(DRIVER, ended=0, flops=0.0))).studies
    assert (study.trials_per_hour, study.seconds_left) == (None, None)
    assert "no trial has ended" in shown(active(replace(DRIVER, ended=0)))


def test_the_text_for_people() -> None:
    orphan = replace(RUNNING, study="", variant="")
    waits = replace(RUNNING, step=None, val_loss=None, worker=None, attempts=2)
    text = shown(active(DRIVER, running=(RUNNING, waits, orphan)))
    assert "driven by process 1 on head for 2 h 00 min" in text
    assert "40 of 100 trials done, 2 running, 2 failed, 1 retried" in text
    assert "30 trials an hour, 8.33 TFLOP/s, 1 h 55 min left" in text
    assert "gpu-3, process 77, cuda: H200" in text
    assert "waits for a worker, attempt 2" in text
    assert "its driver is gone" in text
    failed = replace(DRIVER, failures=(FailedTrial("norm=none", 1, "ValueError: no\nTraceback ..."),))
    assert "failed: norm=none, seed 1: ValueError: no\n" in shown(active(failed))
    assert "silent for 2 min 00 s" in shown(active(replace(DRIVER, alive=False, heartbeat=AT - timedelta(minutes=2))))
    assert shown(active()) == "Nothing runs.\n"


def test_the_json_is_plain_and_complete() -> None:
    plain = json.loads(json.dumps(status_json(status_of(active(DRIVER, running=(RUNNING,)))), allow_nan=False))
    assert plain["studies"][0]["trials_per_hour"] == pytest.approx(30)
    assert plain["studies"][0]["since"] == "2026-03-01T10:00:00+00:00"
    assert plain["running"][0]["worker"] == {"host": "gpu-3", "device": "cuda: H200", "pid": 77}

"""The use of resources that a worker process reports."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
import torch
from engine_samples import planner

from ablate.execution.attempt import Attempt
from ablate.execution.job_runner import EVERY, JobRunner, UsageMeter
from ablate.execution.protocol import Happened, Job, JobMember
from ablate.planning.planner import make_plan
from ablate.training.events import Measurement


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def work(seconds: float) -> float:
    """Keep one core busy; the processor seconds that it took."""
    begin = time.process_time()
    while time.process_time() - begin < seconds:
        sum(range(1000))
    return time.process_time() - begin


def test_a_sample_is_the_mean_since_the_last_one_and_comes_seldom() -> None:
    clock = Clock()
    meter = UsageMeter(torch.device("cpu"), clock)
    clock.now += EVERY / 2
    assert meter.sample() == {}, "too soon"
    spent = work(0.3)
    clock.now += EVERY / 2
    used = meter.sample()
    assert set(used) == {"cores", "memory"}
    assert used["cores"] * EVERY == pytest.approx(spent, abs=0.1)  # clocks of processes tick in hundredths
    assert used["memory"] == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)
    clock.now += EVERY - 0.1
    assert meter.sample() == {}
    clock.now += 0.1 + EVERY
    assert meter.sample()["cores"] * 2 * EVERY < 0.15, "what was worked before the last sample is not counted again"


def test_seconds_in_the_system_count_as_those_in_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [SimpleNamespace(user=10.0, system=4.0), SimpleNamespace(user=16.0, system=7.0)]
    monkeypatch.setattr(psutil.Process, "cpu_times", lambda self: times.pop(0))
    clock = Clock()
    meter = UsageMeter(torch.device("cpu"), clock)
    clock.now += 2 * EVERY
    assert meter.sample()["cores"] == pytest.approx((6 + 3) / (2 * EVERY))


def test_a_graphics_card_whose_driver_says_nothing_ends_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(device: torch.device) -> int:
        raise ModuleNotFoundError("pynvml does not seem to be installed")

    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 2**30)
    monkeypatch.setattr(torch.cuda, "utilization", refuses)
    clock = Clock()
    meter = UsageMeter(torch.device("cuda"), clock)
    clock.now += EVERY
    assert set(meter.sample()) == {"cores", "memory", "gpu_memory"}
    monkeypatch.setattr(torch.cuda, "utilization", lambda device: 40)
    clock.now += EVERY
    assert meter.sample()["gpu"] == 0.4


def test_a_job_reports_a_sample_with_each_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ablate.execution.job_runner.EVERY", 0.0)
    trial = make_plan(planner(tmp_path)).trials[0]
    job = Job(1, (JobMember(trial.variant.spec.model_dump_json(), trial.seed),), trial.variant.fingerprint)
    messages = JobRunner(tmp_path / "cache", torch.device("cpu")).run_job(job, lambda: ())
    events = [message.event for message in messages if isinstance(message, Happened)]
    evaluations = [event for event in events if isinstance(event, Measurement)]
    assert len(evaluations) > 1
    assert all(event.usage["memory"] > 2**20 for event in evaluations)


def test_an_attempt_keeps_the_samples_at_their_steps() -> None:
    training = SimpleNamespace(init_from=None, record_blocks=False)
    trial = SimpleNamespace(variant=SimpleNamespace(spec=SimpleNamespace(training=training)))
    attempt = Attempt(cast(Any, trial), 1, 0, 1, datetime.now(UTC))
    for step, usage in ((0, {}), (5, {"cores": 1.5, "memory": 2.0}), (10, {})):
        attempt.add(Measurement(step, 1.0, 1, 1.0, [2.0], {"val_loss": [2.0]}, usage=usage))
    assert [(one.step, one.values) for one in attempt.recordings] == [(5, {"usage": {"cores": 1.5, "memory": 2.0}})]

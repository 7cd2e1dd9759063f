"""A trial of the local engine that is killed resumes from its newest readable checkpoint, with the same curve."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from cli_runs import quick_workers
from engine_samples import ENVIRONMENT, Log, planner
from trial_processes import is_worker

from ablate.errors import EngineError
from ablate.execution.checkpoint import Checkpoints, JobCheckpoints, write_checkpoint
from ablate.execution.driver import run_study
from ablate.execution.job_runner import JobRunner
from ablate.execution.local import LocalEngine
from ablate.execution.options import RunOptions
from ablate.execution.protocol import Happened, Job, JobMember
from ablate.planning.packing import Packing
from ablate.planning.plan import Trial
from ablate.planning.planner import make_plan
from ablate.spec.space_fields import CheckpointInterval, ResourcesSpec
from ablate.store import Store
from ablate.store.records import CurvePoint
from ablate.training.events import Checkpoint, Measurement, TrialWarning

CPU = torch.device("cpu")
STEPS = 24
SHORT = {"steps": STEPS, "batch_size": 2, "optimizer": {"lr": 1e-3}, "evaluations": 8}
LONG = {"steps": 400, "batch_size": 2, "optimizer": {"lr": 1e-3}, "evaluations": 40}
RATES = {"rate": {"usual": {}, "high": {"training.optimizer.lr": 2e-3}}}
"""Two variants of one structure: they can share a pack."""


pytestmark = pytest.mark.usefixtures("folder")


def job_of(trials: list[Trial]) -> Job:
    members = [JobMember(t.variant.spec.model_dump_json(), t.seed, "", t.key) for t in trials]
    return Job(1, tuple(members), trials[0].variant.fingerprint)


def told(event: Measurement) -> tuple[Any, ...]:
    """All but the seconds, which no two runs share."""
    return event.step, event.tokens, str(event.train_loss), str(event.metrics)


def run(folder: Path, job: Job, saved: JobCheckpoints, until: int = STEPS) -> tuple[list[Measurement], list[str]]:
    """What a worker does with a job until it is killed after the events of step `until`."""
    points, warnings = [], []
    for message in JobRunner(folder / "cache", CPU).run_job(
        job, lambda: (), saved.newest(), CheckpointInterval(steps=4)
    ):
        match message:
            case Happened(event=Checkpoint(step, state)):
                saved.write(step, state)
            case Happened(event=Measurement() as point):
                points.append(point)
            case Happened(event=TrialWarning(text)):
                warnings.append(text)
        if isinstance(message, Happened) and getattr(message.event, "step", 0) > until:
            break
    return points, warnings + saved.take_warnings()


def test_killed_after_any_step_the_curve_is_that_of_an_uninterrupted_run(folder: Path) -> None:
    model = {**planner(folder).space.model.model_dump(), "dropout": 0.1}
    plan = make_plan(planner(folder, training=SHORT, model=model, switches=RATES))
    for number, trials in enumerate(([plan.trials[0]], list(plan.trials[:2]))):  # a trial, and a pack
        job = job_of(trials)
        whole, _ = run(folder, job, Checkpoints(folder / f"whole{number}", CheckpointInterval()).of(job))
        checkpoints = Checkpoints(folder / f"kept{number}", CheckpointInterval(steps=4))
        saved = checkpoints.of(job)
        for until in range(1, STEPS, 4):
            run(folder, job, saved, until)
            assert saved.newest_step() <= until + 3
            assert len(list(saved.folder.glob("*"))) <= 2
        assert saved.newest_step() == STEPS - 4
        again, _ = run(folder, job, saved)
        assert [told(point) for point in again] == [told(point) for point in whole]
        packs = checkpoints.resumable_packs()
        assert [pack.members for pack in packs] == [tuple(t.key for t in trials)] * (len(trials) > 1)


def test_the_newest_readable_checkpoint_is_used(folder: Path) -> None:
    job = job_of([make_plan(planner(folder, training=SHORT)).trials[0]])
    saved = Checkpoints(folder / "kept", CheckpointInterval()).of(job)
    whole, _ = run(folder, job, saved)
    _, newest = sorted(saved.folder.iterdir())
    (newest / "state.pt").write_bytes((newest / "state.pt").read_bytes()[:-100])  # the disk lost the end of the file
    (saved.folder / ".partial-1").mkdir()  # a writer was killed
    state = saved.newest()
    assert state is not None
    assert state["counters"]["steps"] == STEPS - 8
    (warning,) = saved.take_warnings()
    assert "cannot be read" in warning
    assert str(newest) in warning
    again, _ = run(folder, job, saved)
    assert [told(point) for point in again] == [told(point) for point in whole]
    assert not list(saved.folder.glob(".partial-*"))
    for checkpoint in saved.folder.iterdir():
        (checkpoint / "state.pt").write_bytes(b"")
    again, warnings = run(folder, job, saved)
    assert [told(point) for point in again] == [told(point) for point in whole]
    assert len(warnings) == 2


def test_a_checkpoint_of_another_shape_is_not_used(folder: Path) -> None:
    wide = {**planner(folder).space.model.model_dump(), "width": 16}
    other, job = (
        job_of([make_plan(planner(folder, training=SHORT, **more)).trials[0]]) for more in ({"model": wide}, {})
    )
    saved, wrong = (Checkpoints(folder / "kept", CheckpointInterval()).of(each) for each in (job, other))
    run(folder, other, wrong)
    shutil.move(wrong.folder, saved.folder)
    _, warnings = run(folder, job, saved)
    assert len([warning for warning in warnings if "it is of other trials" in warning]) == 2
    run(folder, other, wrong)
    shutil.rmtree(saved.folder)
    shutil.move(wrong.folder, saved.folder)
    for members in saved.folder.glob("*/members.json"):
        members.write_text(members.read_text().replace(wrong.keys[0], saved.keys[0]))
    points, warnings = run(folder, job, saved)
    assert [point.step for point in points] == [0, 3, 6, 9, 12, 15, 18, 21, 24]
    assert any("does not fit its trial" in warning and "instead of" in warning for warning in warnings)


def _first(state: dict[str, Any], value: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Any]:
    name = min(state["model"])
    return {**state, "model": {**state["model"], name: value(state["model"][name])}}


CHANGES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "of another dtype": lambda state: _first(state, torch.Tensor.double),
    "with NaN": lambda state: _first(state, lambda tensor: torch.full_like(tensor, torch.nan)),
    "with a number for a tensor": lambda state: {**state, "model": {**state["model"], min(state["model"]): 3}},
    "of a negative step": lambda state: {**state, "counters": {**state["counters"], "steps": -1}},
    "of a huge step": lambda state: {**state, "counters": {**state["counters"], "steps": 10**12}},
    "of a step that is a text": lambda state: {**state, "counters": {**state["counters"], "steps": "8"}},
    "without random states": lambda state: {name: state[name] for name in state if name != "random"},
    "with a further tensor": lambda state: {**state, "model": {**state["model"], "more": torch.zeros(1, 1)}},
    "without a tensor": lambda state: {**state, "model": dict(list(state["model"].items())[1:])},
    "with other events": lambda state: {**state, "events": [["Runs", {}]]},
    "of other members": lambda state: {**state, "positions": [5], "alive": [5]},
    "that is a list": lambda state: {**state, "optimizer": [1]},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_checkpoint_is_not_used(folder: Path, change: str) -> None:
    """Even with a correct checksum: its trial begins again, with a sentence, and ends as an uninterrupted one."""
    job = job_of([make_plan(planner(folder, training=SHORT)).trials[0]])
    saved = Checkpoints(folder / "kept", CheckpointInterval()).of(job)
    whole, _ = run(folder, job, saved)
    state = saved.newest()
    assert state is not None
    for checkpoint in saved.folder.iterdir():
        write_checkpoint(checkpoint, CHANGES[change](state), saved.keys * 6)
        members = checkpoint / "members.json"
        members.write_text(json.dumps(json.loads(members.read_text()) | {"members": [*saved.keys]}))
    again, warnings = run(folder, job, saved)
    assert any("does not fit its trial" in warning for warning in warnings)
    assert [told(point) for point in again] == [told(point) for point in whole]


@pytest.mark.parametrize(("free", "said"), [(4096, "(the disk is full)"), (2**40, "([enforce fail")])
def test_a_disk_that_takes_no_file_costs_a_checkpoint_and_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch, free: int, said: str
) -> None:
    job = job_of([make_plan(planner(folder, training=SHORT)).trials[0]])
    saved = Checkpoints(folder / "kept", CheckpointInterval()).of(job)
    run(folder, job, saved, 9)
    assert saved.newest_step() == 8
    save, full = torch.save, Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", lambda state, path: save(state, full))
        patch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
        points, warnings = run(folder, job, saved)
    assert points[-1].step == STEPS
    assert len(warnings) == 3
    assert all("could not be written" in warning and said in warning for warning in warnings)
    assert all("\n" not in warning for warning in warnings)
    assert saved.newest_step() == 8
    assert len(list(saved.folder.iterdir())) == 2


def test_an_old_checkpoint_that_cannot_be_removed_ends_no_trial(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of([make_plan(planner(folder, training=SHORT)).trials[0]])
    saved = Checkpoints(folder / "kept", CheckpointInterval()).of(job)

    def refuses(*_: object, **__: object) -> None:
        raise PermissionError("in use")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", refuses)
        points, _ = run(folder, job, saved)
    assert points[-1].step == STEPS


class Killer(Log):
    """Kills the worker, without warning, when the trial has passed each of these steps; at the last, the driver."""

    def __init__(self, *steps: int) -> None:
        super().__init__()
        self.steps = list(steps)

    def measured(self, trial: Trial, point: Measurement, member: int) -> None:
        if self.steps and point.step > self.steps[0]:
            self.steps.pop(0)
            for child in psutil.Process().children():
                if is_worker(child):
                    child.kill()
            if not self.steps:
                raise KeyboardInterrupt


def curves(store: Store, folder: Path) -> list[tuple[CurvePoint, ...]]:
    plan = make_plan(planner(folder, training=LONG, switches=RATES, design={"kind": "leave_one_out", "seeds": 1}))
    found = store.curves([trial.key for trial in plan.trials])
    return [found[trial.key] for trial in plan.trials]


def test_workers_and_driver_killed_with_signal_9(folder: Path, store: Store) -> None:
    resources = ResourcesSpec(checkpoint_every=20)

    def study(log: Log) -> None:
        made = planner(folder, training=LONG, switches=RATES, design={"kind": "leave_one_out", "seeds": 1})
        engine = LocalEngine(
            RunOptions(cache=folder / "cache", device="cpu", workers=1, resources=resources),
            checkpoints=folder / "kept" / "s",
        )
        with quick_workers(), engine:
            run_study(made, store, engine, ENVIRONMENT, log, Packing(most=2))

    with pytest.raises(KeyboardInterrupt):
        study(Killer(60, 150))
    assert list((folder / "kept" / "s").iterdir())
    resumed = Log()
    study(resumed)
    assert [outcome.state.value for outcome in resumed.outcomes] == ["finished"] * 2
    plan = make_plan(planner(folder, training=LONG, switches=RATES, design={"kind": "leave_one_out", "seeds": 1}))
    job = job_of(list(plan.trials))
    whole = [
        message.event
        for message in JobRunner(folder / "cache", CPU).run_job(job, lambda: ())
        if isinstance(message, Happened) and isinstance(message.event, Measurement)
    ]
    for member, curve in enumerate(curves(store, folder)):
        assert [(p.step, p.val_loss) for p in curve] == [(p.step, p.metrics["val_loss"][member]) for p in whole]
        assert [p.train_loss for p in curve[1:]] == [p.train_loss[member] for p in whole[1:]]
    assert not (folder / "kept").exists()


def options(folder: Path, **given: object) -> RunOptions:
    return RunOptions(cache=folder, device="cpu", resources=ResourcesSpec.model_validate(given))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"gpus": 8}, r"--gpus: this machine has too few GPUs.*; got 8"),
        ({"labels": {"zone": "a"}}, r"resources.labels or --label: .*--engine ray.*zone: a"),
        ({"custom": {"slice": 1}}, r"resources.custom or --resource: .*--engine ray"),
        ({"checkpoint_dir": "s3://bucket"}, r"--checkpoint-dir: .*--engine ray"),
    ],
)
def test_resources_that_this_machine_lacks_are_refused(folder: Path, given: dict[str, object], said: str) -> None:
    with pytest.raises(EngineError, match=said):
        LocalEngine(options(folder, **given))


def test_cores_and_memory_of_a_job_limit_the_workers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.execution.local.available_cores", lambda: 8)
    monkeypatch.setattr("ablate.execution.local.free_bytes", lambda device: 10 * 2**30)
    assert LocalEngine(options(folder, cpus=4)).size == 2
    assert LocalEngine(options(folder, memory=3)).size == 3
    with (
        LocalEngine(RunOptions(cache=folder, device="cpu", workers=4, resources=ResourcesSpec(memory=3))) as engine,
        pytest.raises(EngineError, match=r"the memory of a job each.*; got 3 GiB for each\. Ask for less memory"),
    ):
        engine.admit(make_plan(planner(folder)))

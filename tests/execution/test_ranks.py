"""One trial in two processes: the losses of one process, and a killed process costs nothing."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import psutil
import pytest
import torch
from cli_runs import quick_workers
from engine_samples import ENVIRONMENT, planner
from trial_processes import KillsARank, is_rank

from ablate.execution.driver import run_study
from ablate.execution.job_runner import JobRunner
from ablate.execution.local import LocalEngine
from ablate.execution.options import RunOptions, WorkerSettings
from ablate.execution.protocol import Happened, Job, JobMember
from ablate.execution.ranks import _join, _watch, rank_group
from ablate.planning.planner import make_plan
from ablate.spec.space_fields import ResourcesSpec
from ablate.store import Store
from ablate.training.events import Measurement
from ablate.training.sharding import RankLostError, Ranks
from benchmarks.forked_process import ForkedProcess

CPU = torch.device("cpu")
MIXTURE = {"kind": "mixture", "experts": 4, "balance_loss": 1.0, "balance_rate": 0.01}
MODEL = {
    "family": "decoder",
    "depth": 1,
    "width": 8,
    "heads": 2,
    "block": {"mixer": "attention", "mlp": MIXTURE},
    "z_loss": 0.01,
}
CHANGES = {
    "training": {"steps": 100, "batch_size": 8, "micro_batch": 2, "optimizer": {"lr": 1e-3}, "evaluations": 10},
    "model": MODEL,
    "switches": {"rate": {"usual": {}, "high": {"training.optimizer.lr": 2e-3}}},
    "design": {"kind": "leave_one_out", "seeds": 1},
}


pytestmark = pytest.mark.usefixtures("folder")


def test_two_processes_give_the_losses_of_one_and_a_killed_one_resumes(folder: Path, store: Store) -> None:
    resources = ResourcesSpec(checkpoint_every=10)
    log = KillsARank(26, folder)
    plan = make_plan(planner(folder, **CHANGES))
    kept, plugins = folder / "kept" / "s", [str(log.plugin)]
    engine = LocalEngine(
        RunOptions(cache=folder / "cache", device="cpu", workers=1, resources=resources, plugins=plugins),
        checkpoints=kept,
        ranks=2,
    )
    with quick_workers(), engine:
        run_study(planner(folder, **CHANGES), store, engine, ENVIRONMENT, log)
    assert log.killed == 1
    assert [outcome.state.value for outcome in log.outcomes] == ["finished"] * 2
    assert [told for told, *_ in log.told].count("lost") == 1
    for trial in plan.trials:
        job = Job(1, (JobMember(trial.variant.spec.model_dump_json(), trial.seed),), trial.variant.fingerprint)
        alone = [
            message.event
            for message in JobRunner(folder / "cache", CPU).run_job(job, lambda: ())
            if isinstance(message, Happened) and isinstance(message.event, Measurement)
        ]
        curve = store.curves([trial.key])[trial.key]
        assert [point.step for point in curve] == [point.step for point in alone]
        found = [point.val_loss for point in curve]
        assert found == pytest.approx([point.metrics["val_loss"][0] for point in alone], abs=2e-4)
        assert found[0] - found[-1] > 0.03  # so that equal losses are those of training


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the process that ends is forked")
def test_a_process_whose_rank_died_ends_and_leaves_no_folder(folder: Path) -> None:
    meeting = folder / "ranks"
    meeting.mkdir()
    (meeting / "meeting").touch()
    ended = ForkedProcess(lambda: _watch(subprocess.Popen("false"), threading.Event(), str(meeting)))
    assert ended.wait(60) == 1
    assert not meeting.exists()


def test_no_row_is_read_twice_in_a_step() -> None:
    batch = {"inputs": torch.arange(24).view(1, 8, 3), "targets": torch.arange(8).view(1, 8)}
    parts = [Ranks(index, 4).rows(batch) for index in range(4)]
    for name, values in batch.items():
        assert torch.equal(torch.cat([part[name] for part in parts], 1), values)


def test_a_process_that_never_comes_is_a_lost_rank(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)  # what the test sets is taken back
    waits = _join(f"file://{folder}/meeting", WorkerSettings(RunOptions(), ("cpu", "cpu")), 0, 1.0)
    with pytest.raises(RankLostError, match="could not connect"), waits:
        pass
    assert os.environ["GLOO_SOCKET_IFNAME"] in ("lo", "lo0"), "the processes of a trial are on one machine"


@pytest.mark.parametrize("shard", [False, True])
def test_a_process_that_hangs_is_abandoned(folder: Path, shard: bool) -> None:
    """The second process is stopped by a signal in the middle of training: it neither ends nor answers."""
    source = planner(folder, **CHANGES)
    trial = make_plan(source).trials[0]
    job = Job(1, (JobMember(trial.variant.spec.model_dump_json(), trial.seed),), trial.variant.fingerprint)
    suspended = False
    options = RunOptions(cache=folder / "cache", resources=ResourcesSpec(shard=shard))
    group = rank_group(job, WorkerSettings(options, ("cpu", "cpu")), "", silent_seconds=10.0)
    with quick_workers(), pytest.raises(RankLostError), group as ranks:  # noqa: PT012
        assert {one.laddr.ip for one in psutil.Process().net_connections() if one.status == "LISTEN"} == {"127.0.0.1"}
        for message in JobRunner(folder / "cache", CPU).run_job(job, lambda: (), ranks=ranks):
            if isinstance(message, Happened) and getattr(message.event, "step", 0) > 25:
                for process in psutil.Process().children():
                    if is_rank(process):
                        process.suspend()
                        suspended = True
    assert suspended, "it was given up for another reason"

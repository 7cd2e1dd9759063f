"""One trial whose weights are divided among processes: the losses of one process, and checkpoints for any number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from cli_runs import quick_workers
from engine_samples import planner
from safetensors.torch import load_file

from ablate import api
from ablate.errors import EngineError
from ablate.execution.checkpoint import Checkpoints, read_checkpoint
from ablate.execution.job_runner import JobRunner
from ablate.execution.local import LocalEngine
from ablate.execution.options import RunOptions, WorkerSettings
from ablate.execution.protocol import Happened, Job, JobMember, Message
from ablate.execution.ranks import rank_group
from ablate.planning.planner import make_plan
from ablate.spec.space_fields import CheckpointInterval, ResourcesSpec
from ablate.training.events import Checkpoint, Measurement

CPU = torch.device("cpu")
TOLERANCE = 2e-4
"""Nats. Gradients are summed in another order, and Adam turns the rounding of those near zero into whole steps."""
WEIGHTS = "weights.safetensors"
STEPS = 20
CHANGES = {
    "training": {
        "steps": STEPS,
        "batch_size": 8,
        "micro_batch": 2,
        "recompute": "blocks",
        "optimizer": {"lr": 3e-3},
        "evaluations": 4,
    },
    # Four processes cannot divide a width of 14: some tensors are whole on one of them.
    "model": {
        "family": "decoder",
        "depth": 2,
        "width": 14,
        "heads": 2,
        "block": {"mixer": "attention", "mlp": {"kind": "mixture", "experts": 4, "balance_loss": 1.0}},
        "z_loss": 0.01,
    },
    "switches": {"rate": {"usual": {}, "high": {"training.optimizer.lr": 5e-3}}},
    "design": {"kind": "leave_one_out", "seeds": 1},
}
pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture(autouse=True, scope="module")
def imported() -> None:
    """Import what divides a model, which takes a second: the processes are forked from this one."""
    import torch._dynamo
    import torch.distributed.checkpoint
    import torch.distributed.fsdp
    import torch.distributed.tensor  # noqa: F401


def first_job(folder: Path, **changes: object) -> Job:
    trial = make_plan(planner(folder, **{**CHANGES, **changes})).trials[0]
    member = JobMember(trial.variant.spec.model_dump_json(), trial.seed, str(folder / WEIGHTS), key=trial.key)
    return Job(1, (member,), trial.variant.fingerprint)


def in_processes(job: Job, folder: Path, count: int, start: str = "") -> Iterator[Message]:
    """Events of the first of several processes that divide the weights, with a checkpoint in the middle."""
    middle = CheckpointInterval(steps=STEPS // 2)
    state = read_checkpoint(Path(start)) if start else None
    resources = ResourcesSpec(shard=True, checkpoint_every=STEPS // 2)
    settings = WorkerSettings(RunOptions(cache=folder / "cache", resources=resources), ("cpu",) * count)
    group = rank_group(job, settings, start, 60.0)
    with quick_workers(), group as ranks:
        yield from JobRunner(folder / "cache", CPU).run_job(job, lambda: (), state, middle, ranks)


def losses(messages: Iterator[Message]) -> dict[int, float]:
    events = [message.event for message in messages if isinstance(message, Happened)]
    return {event.step: event.metrics["val_loss"][0] for event in events if isinstance(event, Measurement)}


def test_two_processes_have_the_losses_of_one_and_their_checkpoint_is_resumed_by_one_and_by_four(folder: Path) -> None:
    job = first_job(folder)
    kept = Checkpoints(folder / "kept", CheckpointInterval(steps=STEPS // 2)).of(job)
    by_two = []
    for message in in_processes(job, folder, 2):
        by_two.append(message)
        if isinstance(message, Happened) and isinstance(message.event, Checkpoint):
            kept.write(message.event.step, message.event.state)
    assert kept.take_warnings() == []
    state = kept.newest()
    assert state is not None, kept.warnings
    assert len(list(Path(kept.newest_file, "divided").glob("*.safetensors"))) == 2, "each process has written its part"
    uninterrupted = losses(JobRunner(folder / "cache", CPU).run_job(job, lambda: ()))
    assert losses(iter(by_two)) == pytest.approx(uninterrupted, abs=TOLERANCE)
    assert uninterrupted[0] - uninterrupted[STEPS] > 0.05  # so that equal losses are those of training
    weights = load_file(folder / WEIGHTS)
    by_one = losses(JobRunner(folder / "cache", CPU).run_job(job, lambda: (), state))
    assert by_one == pytest.approx(uninterrupted, abs=TOLERANCE)
    by_four = losses(in_processes(job, folder, 4, kept.newest_file))
    assert by_four == pytest.approx(uninterrupted, abs=TOLERANCE)
    for name, whole in load_file(folder / WEIGHTS).items():
        assert (whole - weights[name]).norm() <= 0.01 * weights[name].norm(), name
    part = next(Path(kept.newest_file, "divided").glob("*.safetensors"))
    part.write_bytes(part.read_bytes()[:-9])
    assert kept.newest() is None
    assert "checksum" in kept.take_warnings()[0]


@pytest.mark.parametrize(
    ("ranks", "changes", "path", "got"),
    [
        (1, {}, "resources.shard", "true, with one process for each trial"),
        (2, {"record_blocks": True}, "variant .*, training.record_blocks", "true"),
        (2, {"batch_size": 9, "micro_batch": None}, "variant .*", "batch_size 9"),
    ],
)
def test_what_cannot_be_divided_is_refused(
    folder: Path, ranks: int, changes: dict[str, object], path: str, got: str
) -> None:
    plan = make_plan(planner(folder, **{**CHANGES, "training": {**CHANGES["training"], **changes}}))
    resources = ResourcesSpec(shard=True)
    with (
        LocalEngine(
            RunOptions(cache=folder / "cache", device="cpu", workers=1, resources=resources), ranks=ranks
        ) as engine,
        pytest.raises(EngineError, match=rf"(?s){path}:.*{got}"),
    ):
        engine.admit(plan)


def test_a_pack_whose_weights_are_divided_is_refused(folder: Path) -> None:
    source = planner(folder, **CHANGES, resources={"shard": True})
    with pytest.raises(EngineError, match=r"--pack: the members of a pack share a program.*expected 1.*got 4"):
        api.run(source.space, store=folder / "store.db", pack=4)

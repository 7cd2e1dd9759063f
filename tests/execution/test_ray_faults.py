"""Workers, nodes and drivers of a real Ray cluster that die, and machines that join and leave."""

from __future__ import annotations

import io
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from cli_runs import eventually
from engine_samples import SPACE, Log, planner
from ray._private.state import actors
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray_engines import HOLDING, RAY_MARKS, Listening, begun, drive, plugin
from ray_samples import (
    ANYWHERE,
    DRIVE,
    HOLD,
    LONG,
    ended,
    job,
    joined,
    listen,
    losses,
    points,
    trial,
)
from trial_processes import is_rank

from ablate.execution.checkpoint import job_key
from ablate.execution.job_runner import JobRunner
from ablate.execution.options import RunOptions
from ablate.execution.protocol import Broken, Done, JobRestarted
from ablate.execution.ray import engine as ray_engine
from ablate.execution.ray.cluster import Gpus
from ablate.execution.ray.engine import RayEngine
from ablate.planning.packing import ResumablePack
from ablate.planning.plan import Trial
from ablate.planning.planner import make_plan
from ablate.spec.space_fields import ResourcesSpec
from ablate.store import Store
from ablate.store.records import CurvePoint, TrialState
from ablate.training.events import Measurement

pytestmark = RAY_MARKS


def saved(state: dict[str, torch.Tensor]) -> bytes:
    """What a checkpoint of it is on disk."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def test_a_killed_worker_continues_from_its_checkpoint_and_the_curve_is_that_of_an_uninterrupted_run(
    trainer: Listening, ray_folder: Path
) -> None:
    wanted = trial(ray_folder)
    (ray_folder / HOLDING).touch()
    trainer.submit(job(301, wanted))
    before = listen(trainer, lambda heard: len(points(heard)) > 0 and points(heard)[-1].step >= 60)
    (first,) = begun(before)
    os.kill(first.worker.pid, signal.SIGKILL)
    (ray_folder / HOLDING).unlink()
    after = listen(trainer, ended(301))
    assert after[-1] == Done(301)
    # Nobody needs the checkpoints any more; Ray Tune ends a trial a moment after its last result.
    eventually(lambda: not list((ray_folder / "storage").glob(f"*/{job_key(job(301, wanted))}_*")))
    again = [isinstance(message, JobRestarted) for message in after].index(True)
    assert after[again] == JobRestarted(301, "its worker died")
    (second,) = begun(after)
    assert second.worker.pid != first.worker.pid
    curve = points(after[again:])
    assert [point.step for point in curve] == [0, *wanted.variant.spec.training.evaluation_steps()]
    # Points from before the checkpoint are sent again, not trained again: its seconds are the same.
    told = [point.seconds for point in points(before) if point.step <= 20]
    assert [point.seconds for point in curve[: len(told)]] == told
    trainer.submit(job(302, wanted))
    assert losses(points(listen(trainer, ended(302)))) == losses(curve)


def test_a_job_given_to_a_worker_that_died_while_it_was_idle_restarts_once(
    trainer: Listening, ray_folder: Path
) -> None:
    wanted = trial(ray_folder, steps=2, evaluations=2)
    trainer.submit(job(303, wanted))
    (first,) = begun(listen(trainer, ended(303)))
    os.kill(first.worker.pid, signal.SIGKILL)
    trainer.submit(job(304, wanted))
    after = listen(trainer, ended(304))
    assert after[-1] == Done(304)
    assert [message for message in after if isinstance(message, JobRestarted)] == [JobRestarted(304, "its worker died")]
    (second,) = begun(after)
    assert second.worker.pid != first.worker.pid


def test_a_new_worker_of_an_engine_has_its_options_and_not_those_of_a_later_engine_of_the_process(
    cluster: Cluster, trainer: Listening, ray_folder: Path, tmp_path: Path
) -> None:
    wanted = trial(ray_folder, steps=2, evaluations=2)
    trainer.submit(job(305, wanted))
    (first,) = begun(listen(trainer, ended(305)))
    resources = ResourcesSpec(cpus=0.5, memory=0.1, custom={"later": 1})
    options = RunOptions(
        cache=ray_folder / "cache",
        device="cpu",
        resources=resources,
        address=cluster.address,
        plugins=[plugin(tmp_path, "later")],
    )
    with joined(cluster, 1, resources={"later": 1}), RayEngine(options) as later:
        later.submit(job(305, wanted))
        listen(later, ended(305))
        (tmp_path / "later").unlink()  # its plugin wrote it in its worker
        os.kill(first.worker.pid, signal.SIGKILL)
        trainer.submit(job(306, wanted))
        assert listen(trainer, ended(306))[-1] == Done(306)
    assert not (tmp_path / "later").exists()


def test_a_trial_in_two_processes_resumes_when_one_dies_and_has_the_losses_of_one_process(
    cluster: Cluster, ray_folder: Path, tmp_path: Path
) -> None:
    """The processes divide the model among them, and a checkpoint with it."""
    every = 20
    wanted = trial(ray_folder, steps=10 * every, evaluations=10, batch_size=4)
    held = tmp_path / HOLDING
    held.touch()
    hold = HOLD.format(file=str(held), but=0, step=3 * every)  # until one has been killed
    files = [plugin(tmp_path, "pair", hold)]
    storage, pair = str(ray_folder / "pair"), "pair"
    resources = ResourcesSpec(
        cpus=0.5, memory=0.1, custom={pair: 1}, checkpoint_every=every, checkpoint_dir=storage, shard=True
    )
    with RayEngine(
        RunOptions(
            cache=ray_folder / "cache", device="cpu", resources=resources, address=cluster.address, plugins=files
        ),
        ranks=2,
    ) as engine:
        assert engine.size == 1
        engine.submit(job(311, wanted))
        before = listen(engine, lambda heard: len(points(heard)) > 0 and points(heard)[-1].step >= 2 * every)
        (first,) = begun(before)
        (other,) = [child for child in psutil.Process(first.worker.pid).children() if is_rank(child)]
        other.kill()
        held.unlink()
        after = listen(engine, ended(311))
    again = [isinstance(message, JobRestarted) for message in after].index(True)
    curve = points(after[again:])
    alone = points(list(JobRunner(ray_folder / "cache", torch.device("cpu")).run_job(job(312, wanted), lambda: ())))
    assert [point.step for point in curve] == [point.step for point in alone]
    for ours, theirs in zip(curve, alone, strict=True):
        assert ours.metrics["val_loss"] == pytest.approx(theirs.metrics["val_loss"], abs=2e-4)  # sums of other order
    told = [point.seconds for point in points(before) if point.step <= every]
    assert [point.seconds for point in curve[: len(told)]] == told, "what a checkpoint holds is not trained again"


class KillsNode(Log):
    """Kills a node at the first point of a trial, when others have ended."""

    def __init__(self, kill: Callable[[], None]) -> None:
        super().__init__()
        self.kill: Callable[[], None] | None = kill

    def measured(self, trial: Trial, point: Measurement, member: int) -> None:
        if len(self.outcomes) >= 2 and self.kill is not None and point.step:
            self.kill()
            self.kill = None


def test_a_node_killed_in_the_middle_loses_no_finished_trial_and_trains_none_twice(
    cluster: Cluster, trainer: Listening, ray_folder: Path, store: Store
) -> None:
    with joined(cluster, 1, resources={"slice": 1}) as machine:  # it joins, and it is the one that will die
        log = KillsNode(lambda: cluster.remove_node(machine, allow_graceful=False))
        training = {**SPACE["training"], "steps": 40, "evaluations": 5}
        result = drive(trainer, store, ray_folder, log, training=training)
    assert log.kill is None
    # The driver is not asked for anything now; what it had reserved there must not keep Ray busy for all that.
    eventually(lambda: all(place["state"] != "RESCHEDULING" for place in placement_group_table().values()))
    assert (result.trained, result.trials) == (6, 6), [outcome.reason for outcome in log.outcomes]
    finished = [(name, seed) for what, name, seed in log.told if what == "finished"]
    assert len(finished) == len(set(finished)) == 6
    for what, name, seed in log.told:
        if what == "finished":
            last = max(i for i, told in enumerate(log.told) if told == ("started", name, seed))
            assert last < log.told.index(("finished", name, seed)), "nothing finished was begun again"
    records = store.trials([planned.key for planned in store.study("sample").planned]).values()
    assert sum(record.attempts - 1 for record in records) == sum(what == "lost" for what, _, _ in log.told)


def test_a_killed_driver_continues_where_it_was_from_checkpoints_and_brings_plugins_to_a_cluster_it_was_connected_to(
    cluster: Cluster, trainer: Listening, ray_folder: Path, store: Store, tmp_path: Path
) -> None:
    # The first job continues and ends; the others wait at step 60 for a kill that may come late.
    (tmp_path / HOLDING).touch()
    held = plugin(ray_folder, "holds", HOLD.format(file=str(tmp_path / HOLDING), but=1, step=60))
    arguments = (str(Path(__file__).parent), str(tmp_path / "store.db"), cluster.address, held)
    command = [sys.executable, "-c", DRIVE, *arguments]

    def states() -> dict[str, tuple[TrialState, list[CurvePoint]]]:
        keys = [planned.key for planned in store.study("sample").planned] if store.studies() else []
        records, curves = store.trials(keys), store.curves(keys)
        return {key: (record.state, list(curves[key])) for key, record in records.items()}

    def middle(known: dict[str, tuple[TrialState, list[CurvePoint]]]) -> list[str]:
        """The trials that are well beyond a checkpoint, when another has finished."""
        if all(state is not TrialState.FINISHED for state, _ in known.values()):
            return []
        return [key for key, (state, curve) in known.items() if state is TrialState.RUNNING and len(curve) > 6]

    own = os.environ | {"TMPDIR": str(tmp_path)}  # for what it leaves when it is killed
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=own) as driver:
        while not middle(before := states()):
            assert driver.poll() is None
            time.sleep(0.02)
        driver.kill()
    key = middle(before)[0]
    (planned,) = (planned for planned in make_plan(planner(ray_folder, **LONG)).trials if planned.key == key)
    left_by_anyone = f"*/{job_key(job(1, planned))}_*"
    (left,) = (ray_folder / "checkpoints").glob(left_by_anyone)
    broken = left / "checkpoint_999999"  # as if the driver had died while a node wrote
    broken.mkdir()
    (broken / "state.pt").write_bytes(saved({"step": torch.zeros(1000)})[:1000])
    files = [plugin(ray_folder, "follows")]
    with RayEngine(
        RunOptions(
            cache=ray_folder / "cache", device="cpu", resources=ANYWHERE, address=cluster.address, plugins=files
        ),
        name="sample",
    ) as again:
        Path(files[0]).unlink()
        result = drive(again, store, ray_folder, **LONG)
    finished = [key for key, (state, _) in before.items() if state is TrialState.FINISHED]
    assert (result.trained, result.reused) == (3 - len(finished), len(finished))
    after = states()
    assert {state for state, _ in after.values()} == {TrialState.FINISHED}
    assert all(after[key] == before[key] for key in finished)
    # Up to its last checkpoint the trial was not trained again: its seconds are those of the dead driver's worker.
    told = [point.seconds for point in before[key][1] if point.step <= 40]
    assert [point.seconds for point in after[key][1]][: len(told)] == told
    assert [point.step for point in after[key][1]] == list(range(0, 141, 10))
    assert Path((ray_folder / "follows").read_text()).name == "follows.py"
    assert not list((ray_folder / "checkpoints").glob(left_by_anyone)), "no later plan resumes from it"


def test_a_pack_of_a_dead_driver_continues_and_completed_members_leave_it(
    cluster: Cluster, trainer: Listening, ray_folder: Path
) -> None:
    wanted = trial(ray_folder, steps=600)  # long enough to be left in the middle
    members = tuple(replace(job(0, wanted).members[0], seed=seed, key=f"k{seed}") for seed in range(3))
    pack = replace(job(1, wanted), members=members)
    storage = str(ray_folder / "packs")
    resources = ResourcesSpec(cpus=0.5, memory=0.1, custom={"packs": 1}, checkpoint_every=100, checkpoint_dir=storage)
    with RayEngine(
        RunOptions(cache=ray_folder / "cache", device="cpu", resources=resources, address=cluster.address),
        name="packed",
    ) as first:
        assert first.resumable_packs() == []
        first.submit(pack)
        before = points(listen(first, lambda heard: len(points(heard)) > 0 and points(heard)[-1].step >= 300))
    with RayEngine(
        RunOptions(cache=ray_folder / "cache", device="cpu", resources=resources, address=cluster.address),
        name="packed",
    ) as second:
        assert second.resumable_packs() == [ResumablePack(("k0", "k1", "k2"), frozenset({"k0", "k1", "k2"}))]
        second.submit(pack)
        second.stop(1, 1)
        curve = points(listen(second, ended(1)))
    assert RayEngine.resumable_packs(second) == [], "no later plan resumes from it"
    told = [point.seconds for point in before if point.step <= 200]
    assert [point.seconds for point in curve][: len(told)] == told
    assert curve[-1].step == 600
    assert [math.isfinite(loss) for loss in curve[-1].train_loss] == [True, False, True]


def test_workers_that_are_killed_for_memory_cost_attempts_of_their_job_and_not_the_run(
    cluster: Cluster, trainer: Listening, ray_folder: Path
) -> None:
    """Ray's memory monitor, on a machine that always seems to use too much: it kills whatever trains."""
    full = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "3000"}
    resources = ResourcesSpec(cpus=0.5, memory=0.1, custom={"full": 1})
    options = RunOptions(cache=ray_folder / "cache", device="cpu", resources=resources, address=cluster.address)
    endless, reason = trial(ray_folder, steps=10**7), "its worker was killed because its node ran out of memory"
    with joined(cluster, 1, resources={"full": 1}, env_vars=full), RayEngine(options) as engine:
        engine.submit(job(321, endless))
        heard = listen(engine, ended(321))
        assert {message.reason for message in heard if isinstance(message, JobRestarted | Broken)} == {reason}
        assert isinstance(heard[-1], Broken), "it is given up in the end"
        engine.submit(job(322, endless))
        heard = listen(engine, lambda heard: len(heard) > 0)
        assert {message.number for message in heard} == {322}, "Ray Tune runs on: it starts, or is killed before"
        engine.stop(322, 0)
        listen(engine, lambda more: ended(322)(heard + more))


def test_the_memory_of_gpus_is_queried_when_they_join_even_if_they_are_in_use(
    cluster: Cluster, trainer: Listening
) -> None:
    gpus = Gpus(lambda: 2**34)
    assert gpus.smallest(60.0) == 0
    with joined(cluster, 1, num_gpus=1):
        others = placement_group([{"GPU": 1}])
        assert others.wait(60)
        assert gpus.smallest(60.0) == 2**34
        assert Gpus().smallest(120.0) == 0, "this one is none"
        remove_placement_group(others)
    eventually(lambda: gpus.smallest() == 0)


def test_packs_go_to_the_machine_with_a_gpu_and_others_train_too(
    cluster: Cluster, trainer: Listening, ray_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray places by what machines say they have; here what is placed on a GPU trains on a processor."""
    found = ray_engine.find_placements

    def on_processors(*arguments: Any, **more: Any) -> dict[Any, int]:
        return {replace(placement, device="cpu"): count for placement, count in found(*arguments, **more).items()}

    monkeypatch.setattr(ray_engine, "find_placements", on_processors)
    monkeypatch.setattr(Gpus, "smallest", lambda *_: 2**34)
    (tmp_path / HOLDING).touch()
    waiting = [plugin(tmp_path, "waiting", HOLD.format(file=str(tmp_path / HOLDING), but=0, step=0))]
    storage = str(ray_folder / "mixed")
    resources = ResourcesSpec(
        cpus=0.5, gpus=0.5, memory=0.1, custom={"mixed": 1}, checkpoint_every=10, checkpoint_dir=storage
    )
    with (
        joined(cluster, 2, num_gpus=1, resources={"mixed": 3}) as gpu,
        joined(cluster, 1, resources={"mixed": 1}) as plain,
        RayEngine(
            RunOptions(
                cache=ray_folder / "cache",
                device="auto",
                pack=1,
                resources=resources,
                address=cluster.address,
                plugins=waiting,
            )
        ) as mixed,
    ):
        assert mixed.size == 3, "two halves of the GPU, whatever cores are beside it, and one on the other machine"
        for_gpu = set()
        for number in range(1, 7):
            if mixed.next_device().memory > 2**32:
                for_gpu.add(number)
            mixed.submit(job(number, trial(ray_folder)))
        assert for_gpu == {1, 3, 4, 6}
        # Three fit; and a job for a processor that waits begins on the cores that are left beside the GPU.
        heard = listen(mixed, lambda heard: len(begun(heard)) == 4)
        heard += mixed.poll(0.0) + mixed.poll(1.0)
        where = {entry["Pid"]: entry["Address"]["NodeID"] for entry in actors().values()}
        placed = {message.number: where[message.worker.pid] for message in begun(heard)}
        assert [node for number, node in placed.items() if number in for_gpu] == [gpu.node_id] * 2
        assert plain.node_id in placed.values()

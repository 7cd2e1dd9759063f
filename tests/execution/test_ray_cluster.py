"""The Ray engine on a real cluster: several nodes on this machine, each with workers of its own.

To start a worker costs seconds of a processor, so most tests share an engine and its two warm workers.
"""

from __future__ import annotations

import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runs import Workplace, eventually
from engine_samples import ENVIRONMENT, SPACE, Log, planner
from ray._private.state import actors
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray_samples import (
    ANYWHERE,
    DRIVE,
    HOLD,
    LONG,
    POPULATION,
    ended,
    job,
    joined,
    listen,
    losses,
    node,
    numbers,
    points,
    small_cluster,
    trial,
)

from ablate.errors import EngineError
from ablate.execution.driver import StudyResult, run_study
from ablate.execution.local import LocalEngine
from ablate.execution.protocol import Began, Broken, Done, Happened, Job, JobMember, JobRestarted, Message
from ablate.execution.ray import engine as ray_engine
from ablate.execution.ray.engine import RayEngine
from ablate.execution.ray.gpus import Gpus
from ablate.execution.ray.storage import job_key
from ablate.planning.packing import ResumablePack
from ablate.planning.plan import Trial, make_plan
from ablate.spec.resources import ResourcesSpec
from ablate.store import Store, open_store
from ablate.store.records import CurvePoint, TrialState
from ablate.training.events import Point

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(900),
    # Ray's own: it forks helpers, closes sockets late and reads its own deprecated settings.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.*"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray.*"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PLUGIN = "from pathlib import Path\nPath({mark!r}).write_text(__file__)\n"
HOLDING = "hold"
"""While this file is in the working folder, jobs of a `trainer` stay where they are at step 300."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head that trains nothing, and a node of one core."""
    with small_cluster() as made:
        made.add_node(**node(1, resources={"slice": 1}))
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working folder of all that is here."""
    made = tmp_path_factory.mktemp("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        yield made


def plugin(folder: Path, name: str, more: str = "") -> str:
    """A plugin that notes where it was imported from."""
    file = folder / f"{name}.py"
    file.write_text(PLUGIN.format(mark=str(folder / name)) + more)
    return str(file)


def saved(state: dict[str, torch.Tensor]) -> bytes:
    """What a checkpoint of it is on disk."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


class Listening(RayEngine):
    """Remembers what it said."""

    heard: list[Message]

    def poll(self, timeout: float) -> list[Message]:
        said = super().poll(timeout)
        self.heard += said
        return said

    def is_idle(self) -> bool:
        self.poll(0.1)
        return not self._placed


@pytest.fixture(scope="module")
def trainer(cluster: Cluster, folder: Path) -> Iterator[Listening]:
    """Two halves of a core, and checkpoints on a file system that only fsspec knows by this name."""
    storage = f"local://{folder}/storage"
    resources = ResourcesSpec(cpus=0.5, memory=0.1, custom={"slice": 0.5}, checkpoint_every=100, storage=storage)
    files = (plugin(folder, "travels", HOLD.format(file=str(folder / HOLDING), but=0)),)
    with Listening(folder / "cache", "cpu", resources, address=cluster.address, plugins=files) as made:
        made.heard = []
        made.admit(make_plan(planner(folder, **POPULATION)))  # one of the studies to come
        Path(files[0]).unlink()  # as on a machine that does not see the driver's files
        yield made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store.db") as opened:
        yield opened


def drive(
    trainer: RayEngine | LocalEngine, store: Store, folder: Path, log: Log | None = None, **space: object
) -> StudyResult:
    result = run_study(planner(folder, **space), store, trainer, ENVIRONMENT, log or Log())
    if isinstance(trainer, Listening):
        eventually(trainer.is_idle)  # who was told to stop may still have to hear it, and the next study counts anew
    return result


def begun(heard: list[Message]) -> list[Began]:
    return [message for message in heard if isinstance(message, Began)]


def test_fractions_are_respected_plugins_travel_and_who_is_to_stop_stops(trainer: Listening, folder: Path) -> None:
    assert trainer.size == 2
    for number in (1, 2, 3):
        trainer.submit(job(number, trial(folder, steps=10**6)))
    heard = listen(trainer, lambda heard: len(begun(heard)) == 2)
    assert len({message.worker.pid for message in begun(heard)}) == 2
    assert Path((folder / "travels").read_text()).name == "travels.py"
    assert not begun(trainer.poll(0.0) + trainer.poll(1.0)), "a third would take what is not there"
    for number in (1, 2, 3):
        trainer.stop(number, 0)
    assert {type(message) for message in listen(trainer, ended(1, 2, 3))} <= {Began, Done, Happened}


def test_with_json_standard_output_is_one_object(cluster: Cluster, tmp_path: Path) -> None:
    place = Workplace(tmp_path, tmp_path / "cache")
    (tmp_path / "noisy.py").write_text("import os\nprint('printed')\nos.write(1, b'written past Python\\n')\n")
    where = ("--engine", "ray", "--address", cluster.address)
    with joined(cluster, 1):  # warm workers of the other tests may hold the only core
        trained = place.run("study", place.space(seeds=1), *where, "--plugin", "noisy.py", "--json")
    assert trained.code == 0, trained.err
    assert json.loads(trained.out)["trained"] == 3
    assert {"printed", "written past Python"} <= set(trained.err.splitlines())


def test_what_no_machine_has_is_refused_with_what_there_is(cluster: Cluster, trainer: Listening, folder: Path) -> None:
    wanted = ResourcesSpec(custom={"slice": 5}, memory=0.1)
    with (
        RayEngine(folder / "cache", "cpu", wanted, address=cluster.address) as small,
        pytest.raises(EngineError, match=r"no machine .* slice 5; got .*slice 1"),
    ):
        small.admit(make_plan(planner(folder)))


def test_the_same_space_gives_the_same_variants_trials_and_numbers(
    trainer: Listening, folder: Path, store: Store, tmp_path: Path
) -> None:
    recording = {**SPACE["training"], "record_blocks": True}
    with LocalEngine(folder / "cache", workers=1) as local:
        drive(local, store, folder, training=recording)
    assert all(found[-1] for found in numbers(store).values())
    with open_store(tmp_path / "ray.db") as other:
        result = drive(trainer, other, folder, training=recording)
        assert (result.trained, result.trials) == (6, 6)
        assert numbers(other) == numbers(store)
        records = other.trials([planned.key for planned in other.study("sample").planned]).values()
        workers = {record.worker.pid for record in records if record.worker}
        assert len(workers) <= 2, "actors stay warm from one trial to the next"


def test_what_a_search_prunes_is_ended_by_rays_scheduler(trainer: Listening, folder: Path, store: Store) -> None:
    steps = 1000
    search = {
        "kind": "search",
        "sampler": "random",
        "seeds": 1,
        "points": 7,
        "ranges": {"training.optimizer.lr": {"low": 1e-8, "high": 1e-2, "log": True}},
        "pruning": {"kind": "median", "finished": 1},
    }
    training = {**SPACE["training"], "steps": steps, "evaluations": 20}
    trainer.heard.clear()
    result = drive(trainer, store, folder, design=search, training=training)
    assert result.trials == result.trained + result.pruned == 7
    records = store.trials([planned.key for planned in store.study("sample").planned])
    pruned = [record for record in records.values() if record.state is TrialState.PRUNED]
    assert len(pruned) == result.pruned > 0
    for record in pruned:
        curve = store.curves([record.key])[record.key]
        assert record.steps == curve[-1].step == record.stopped_at < steps
        assert record.metrics == {}
    told = {number: points([m for m in trainer.heard if m.number == number]) for number in range(1, 8)}
    assert sum(curve[-1].step < steps for curve in told.values()) > 0, "nobody was ended while it trained"


def test_a_population_exchanges_weights_and_values(trainer: Listening, folder: Path, store: Store) -> None:
    """Four members on two seats take turns."""
    rate = "training.optimizer.lr"
    low, high = POPULATION["design"]["ranges"][rate]
    result = drive(trainer, store, folder, **POPULATION)
    assert (result.trained, result.trials) == (5, 5)
    baseline, *members = [planned.key for planned in store.study("sample").planned]
    curves = store.curves(members)
    assert {tuple(point.step for point in curve) for curve in curves.values()} == {tuple(range(0, 301, 50))}
    assert store.recordings(baseline) == ()
    used = {key: [one.values["values"][rate] for one in store.recordings(key)] for key in members}
    assert all(low <= value <= high for values in used.values() for value in values)
    begins = [variant.spec["training"]["optimizer"]["lr"] for variant in store.study("sample").variants[1:]]
    assert {values[0] for values in used.values()} <= {float(f"{value:.4g}") for value in begins}
    took = {key for key, values in used.items() if len(set(values)) > 1}
    assert took, "nobody took over values"
    for key in took:  # who takes over goes on with other values from an exchange on
        assert used[key].index(next(value for value in used[key] if value != used[key][0])) in (3, 5)
    trained = {key: curve[1].seconds for key, curve in curves.items()}
    assert len(set(trained.values())) < 4, "nobody has the weights, and so the first steps, of another"


def test_what_does_not_fit_into_memory_or_raises_fails_alone(trainer: Listening, folder: Path) -> None:
    fine = trial(folder, steps=2, evaluations=2)
    huge = fine.variant.spec.model_dump(mode="json")
    huge["model"]["width"] = 2**30  # an embedding of a terabyte, which is refused at once
    trainer.submit(Job(201, (JobMember(json.dumps(huge), 0),), fine.variant.fingerprint))
    trainer.submit(Job(202, (JobMember('{"no": "variant"}', 0),), "f"))
    trainer.submit(job(203, fine))
    heard = listen(trainer, ended(201, 202, 203))
    broken = {message.number: message for message in heard if isinstance(message, Broken)}
    assert set(broken) == {201, 202}
    assert "allocate memory" in broken[201].reason
    assert "Traceback" in broken[201].trace, "it would not fit elsewhere: no second attempt"
    assert broken[202].reason.startswith("ValidationError")
    assert Done(203) in heard


def test_a_killed_worker_goes_on_from_its_checkpoint_and_the_curve_is_that_of_an_uninterrupted_run(
    trainer: Listening, folder: Path
) -> None:
    wanted = trial(folder)
    (folder / HOLDING).touch()
    trainer.submit(job(301, wanted))
    before = listen(trainer, lambda heard: len(points(heard)) > 0 and points(heard)[-1].step >= 300)
    (first,) = begun(before)
    os.kill(first.worker.pid, signal.SIGKILL)
    (folder / HOLDING).unlink()
    after = listen(trainer, ended(301))
    assert after[-1] == Done(301)
    # Nobody needs the checkpoints any more; Ray Tune ends a trial a moment after its last result.
    eventually(lambda: not list((folder / "storage").glob(f"*/{job_key(job(301, wanted))}_*")))
    again = [isinstance(message, JobRestarted) for message in after].index(True)
    assert after[again] == JobRestarted(301, "its worker died")
    (second,) = begun(after)
    assert second.worker.pid != first.worker.pid
    curve = points(after[again:])
    assert [point.step for point in curve] == [0, *wanted.variant.spec.training.evaluation_steps()]
    # What was told before the checkpoint is told again, not trained again: its seconds are the same.
    told = [point.seconds for point in points(before) if point.step <= 100]
    assert [point.seconds for point in curve[: len(told)]] == told
    trainer.submit(job(302, wanted))
    assert losses(points(listen(trainer, ended(302)))) == losses(curve)


class KillsNode(Log):
    """Kills a node at the first point of a trial, when others have ended."""

    def __init__(self, kill: Callable[[], None]) -> None:
        super().__init__()
        self.kill: Callable[[], None] | None = kill

    def measured(self, trial: Trial, point: Point, member: int) -> None:
        if len(self.outcomes) >= 2 and self.kill is not None and point.step:
            self.kill()
            self.kill = None


def test_a_node_killed_in_the_middle_loses_no_finished_trial_and_trains_none_twice(
    cluster: Cluster, trainer: Listening, folder: Path, store: Store
) -> None:
    with joined(cluster, 1, resources={"slice": 1}) as machine:  # it joins, and it is the one that will die
        log = KillsNode(lambda: cluster.remove_node(machine, allow_graceful=False))
        training = {**SPACE["training"], "steps": 200, "evaluations": 5}
        result = drive(trainer, store, folder, log, training=training)
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


def test_a_killed_driver_goes_on_where_it_was_from_checkpoints_and_brings_plugins_to_a_cluster_it_was_connected_to(
    cluster: Cluster, trainer: Listening, folder: Path, store: Store, tmp_path: Path
) -> None:
    # The first job goes on and ends; the others wait at step 300 for a kill that may come late.
    (tmp_path / HOLDING).touch()
    held = plugin(folder, "holds", HOLD.format(file=str(tmp_path / HOLDING), but=1))
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

    with joined(cluster, 1, resources={"late": 1}):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
            while not middle(before := states()):
                assert driver.poll() is None
                time.sleep(0.02)
            driver.kill()
        key = middle(before)[0]
        (planned,) = (planned for planned in make_plan(planner(folder, **LONG)).trials if planned.key == key)
        left_by_anyone = f"*/{job_key(job(1, planned))}_*"
        (left,) = (folder / "checkpoints").glob(left_by_anyone)
        broken = left / "checkpoint_999999"  # as if the driver had died while a node wrote
        broken.mkdir()
        (broken / "state.pt").write_bytes(saved({"step": torch.zeros(1000)})[:1000])
        files = (plugin(folder, "follows"),)
        with RayEngine(folder / "cache", "cpu", ANYWHERE, cluster.address, plugins=files, name="sample") as again:
            Path(files[0]).unlink()
            result = drive(again, store, folder, **LONG)
    finished = [key for key, (state, _) in before.items() if state is TrialState.FINISHED]
    assert (result.trained, result.reused) == (3 - len(finished), len(finished))
    after = states()
    assert {state for state, _ in after.values()} == {TrialState.FINISHED}
    assert all(after[key] == before[key] for key in finished)
    # Up to its last checkpoint the trial was not trained again: its seconds are those of the dead driver's worker.
    told = [point.seconds for point in before[key][1] if point.step <= 200]
    assert [point.seconds for point in after[key][1]][: len(told)] == told
    assert [point.step for point in after[key][1]] == list(range(0, 701, 50))
    assert Path((folder / "follows").read_text()).name == "follows.py"
    assert not list((folder / "checkpoints").glob(left_by_anyone)), "nobody will go on from it"


def test_a_pack_of_a_driver_that_is_gone_goes_on_and_who_is_over_leaves_it(
    cluster: Cluster, trainer: Listening, folder: Path
) -> None:
    wanted = trial(folder)
    members = tuple(replace(job(0, wanted).members[0], seed=seed, key=f"k{seed}") for seed in range(3))
    pack = replace(job(1, wanted), members=members)
    storage = str(folder / "packs")
    resources = ResourcesSpec(cpus=0.5, memory=0.1, custom={"packs": 1}, checkpoint_every=100, storage=storage)
    with joined(cluster, 1, resources={"packs": 1}):
        with RayEngine(folder / "cache", "cpu", resources, cluster.address, name="packed") as first:
            assert first.resumable_packs() == []
            first.submit(pack)
            before = points(listen(first, lambda heard: len(points(heard)) > 0 and points(heard)[-1].step >= 300))
        with RayEngine(folder / "cache", "cpu", resources, cluster.address, name="packed") as second:
            assert second.resumable_packs() == [ResumablePack(("k0", "k1", "k2"), frozenset({"k0", "k1", "k2"}))]
            second.submit(pack)
            second.stop(1, 1)
            curve = points(listen(second, ended(1)))
        assert RayEngine.resumable_packs(second) == [], "nobody will go on from it"
    told = [point.seconds for point in before if point.step <= 200]
    assert [point.seconds for point in curve][: len(told)] == told
    assert curve[-1].step == 600
    assert [math.isfinite(loss) for loss in curve[-1].train_loss] == [True, False, True]


def test_gpus_are_asked_how_large_they_are_when_they_join_and_though_they_are_taken(
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
    cluster: Cluster, trainer: Listening, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray places by what machines say they have; here what is placed on a GPU trains on a processor."""
    found = ray_engine.seats

    def on_processors(*arguments: Any, **more: Any) -> dict[Any, int]:
        return {replace(seat, device="cpu"): count for seat, count in found(*arguments, **more).items()}

    monkeypatch.setattr(ray_engine, "seats", on_processors)
    monkeypatch.setattr(Gpus, "smallest", lambda *_: 2**34)
    resources = ResourcesSpec(cpus=0.5, gpus=0.5, memory=0.1, custom={"mixed": 1})
    with (
        joined(cluster, 2, num_gpus=1, resources={"mixed": 3}) as gpu,
        joined(cluster, 1, resources={"mixed": 1}) as plain,
        RayEngine(folder / "cache", "auto", resources, address=cluster.address) as mixed,
    ):
        assert mixed.size == 3, "two halves of the GPU, whatever cores are beside it, and one on the other machine"
        for_gpu = set()
        for number in range(1, 7):
            if mixed.next_place().memory > 2**32:
                for_gpu.add(number)
            mixed.submit(job(number, trial(folder, steps=10**6)))
        assert for_gpu == {1, 3, 4, 6}
        # Three fit; and a job for a processor that waits begins on the cores that are left beside the GPU.
        heard = listen(mixed, lambda heard: len(begun(heard)) == 4)
        heard += mixed.poll(0.0) + mixed.poll(1.0)
        where = {entry["Pid"]: entry["Address"]["NodeID"] for entry in actors().values()}
        placed = {message.number: where[message.worker.pid] for message in begun(heard)}
        assert [node for number, node in placed.items() if number in for_gpu] == [gpu.node_id] * 2
        assert plain.node_id in placed.values()

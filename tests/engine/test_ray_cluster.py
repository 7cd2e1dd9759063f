"""The Ray engine on a real cluster: several nodes on this machine, each with workers of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_runs import eventually
from engine_samples import ENVIRONMENT, SPACE, Log, planner
from ray.cluster_utils import Cluster

from ablate.engine.base import Engine
from ablate.engine.local import LocalEngine
from ablate.engine.plan import Trial, make_plan
from ablate.engine.ray.engine import RayEngine
from ablate.engine.study import StudyResult, run_study
from ablate.engine.worker import Again, Began, Broken, Done, Happened, Job, JobMember, Message
from ablate.errors import EngineError
from ablate.spec.resources import ResourcesSpec
from ablate.store import Store, open_store
from ablate.store.records import TrialOutcome, TrialState
from ablate.training.events import Point

pytestmark = [
    pytest.mark.ray,
    # Ray's own: it forks helpers, closes sockets late and reads its own deprecated settings.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.*"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray.*"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A head that trains nothing, and two nodes of one core."""
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    made = Cluster(initialize_head=True, head_node_args=node(0))
    for _ in range(2):
        made.add_node(**node(1))
    made.wait_for_nodes()
    yield made
    made.shutdown()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


def node(cores: int, **options: Any) -> dict[str, Any]:
    options = {"resources": {"slot": 4}, **options} if cores else options
    return {"num_cpus": cores, "num_gpus": 0, "object_store_memory": 80_000_000, "include_dashboard": False, **options}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(autouse=True)
def _here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.fixture(scope="module")
def trainer(cluster: Cluster, folder: Path) -> Iterator[RayEngine]:
    """An engine that keeps checkpoints; most tests share it, as it takes some seconds to begin and end."""
    resources = ResourcesSpec(memory=0.1, checkpoint_every=300, storage=str(folder / "storage"))
    with RayEngine(folder / "cache", "cpu", resources, address=cluster.address) as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store.db") as opened:
        yield opened


def drive(trainer: Engine, store: Store, folder: Path, log: Log | None = None, **space: object) -> StudyResult:
    return run_study(planner(folder, **space), store, trainer, ENVIRONMENT, log or Log())


def numbers(store: Store) -> dict[tuple[str, int], Any]:
    """All that is stored of a study's trials, but for seconds and machines."""
    planned = store.study("sample").planned
    keys = [trial.key for trial in planned]
    records, curves = store.trials(keys), store.curves(keys)
    return {
        (trial.variant, trial.seed): (
            trial.key,
            records[trial.key].state,
            records[trial.key].metrics,
            [(point.step, point.tokens, point.flops, point.train_loss, point.val_loss) for point in curves[trial.key]],
            store.recordings(trial.key),
        )
        for trial in planned
    }


def trial(folder: Path, **training: object) -> Trial:
    """A trial of some seconds with many points, unless `training` says otherwise."""
    changed = {**SPACE["training"], "steps": 2000, "evaluations": 40, **training}
    return make_plan(planner(folder, training=changed)).trials[0]


def job(number: int, wanted: Trial) -> Job:
    variant = wanted.variant
    return Job(number, (JobMember(variant.spec.model_dump_json(), wanted.seed),), variant.fingerprint)


def listen(trainer: Engine, until: Callable[[list[Message]], bool], timeout: float = 120.0) -> list[Message]:
    heard: list[Message] = []
    deadline = time.monotonic() + timeout
    while not until(heard):
        assert time.monotonic() < deadline, heard
        heard += trainer.poll(0.1)
    return heard


def ended(*numbers: int) -> Callable[[list[Message]], bool]:
    return lambda heard: {m.number for m in heard if isinstance(m, Done | Broken)} >= set(numbers)


def points(messages: list[Message]) -> list[Point]:
    return [m.event for m in messages if isinstance(m, Happened) and isinstance(m.event, Point)]


def losses(curve: list[Point]) -> list[tuple[int, str, str]]:
    return [(point.step, str(point.train_loss), str(point.metrics)) for point in curve]


# Before the shared engine begins: files travel with a connection, and a process has one.
def test_fractions_and_resources_of_ones_own_are_respected_and_plugins_travel(cluster: Cluster, folder: Path) -> None:
    plugin, mark = folder / "travels_along.py", folder / "loaded"
    plugin.write_text(f"from pathlib import Path\nPath({str(mark)!r}).write_text(__file__)\n")
    joined = cluster.add_node(**node(2, resources={"slice": 1}))
    cluster.wait_for_nodes()
    resources = ResourcesSpec(cpus=0.5, memory=0.1, custom={"slice": 0.5})
    with RayEngine(folder / "cache", "cpu", resources, address=cluster.address, plugins=(str(plugin),)) as shared:
        plugin.unlink()  # as on a machine that does not see the driver's files
        assert shared.size == 2
        for number in (1, 2, 3):
            shared.submit(job(number, trial(folder, steps=10**6)))
        heard = listen(shared, lambda heard: sum(isinstance(message, Began) for message in heard) == 2)
        assert len({message.worker.pid for message in heard if isinstance(message, Began)}) == 2
        assert Path(mark.read_text()).name == "travels_along.py"
        more = shared.poll(0.0) + shared.poll(2.0)
        assert not any(isinstance(message, Began) for message in more), "a third would take what is not there"
    wanted = ResourcesSpec(custom={"slice": 5}, memory=0.1)
    with (
        RayEngine(folder / "cache", "cpu", wanted, address=cluster.address) as small,
        pytest.raises(EngineError, match=r"no machine .* slice 5; got .*slice 1"),
    ):
        small.admit(make_plan(planner(folder)))
    cluster.remove_node(joined)


def test_the_same_space_gives_the_same_variants_trials_and_numbers(
    trainer: RayEngine, folder: Path, store: Store, tmp_path: Path
) -> None:
    recording = {**SPACE["training"], "record_blocks": True}
    with LocalEngine(folder / "cache", workers=2) as local:
        drive(local, store, folder, training=recording)
    assert all(found[-1] for found in numbers(store).values())
    with open_store(tmp_path / "ray.db") as other:
        assert trainer.size == 2
        result = drive(trainer, other, folder, training=recording)
        assert (result.trained, result.trials) == (6, 6)
        assert numbers(other) == numbers(store)
        records = other.trials([planned.key for planned in other.study("sample").planned]).values()
        workers = {record.worker.pid for record in records if record.worker}
        assert len(workers) == 2, "actors stay warm from one trial to the next"


def test_a_killed_worker_goes_on_from_its_checkpoint_and_the_curve_is_that_of_an_uninterrupted_run(
    trainer: RayEngine, folder: Path
) -> None:
    wanted = trial(folder)
    trainer.submit(job(101, wanted))
    before = listen(trainer, lambda heard: len(points(heard)) > 0 and points(heard)[-1].step >= 800)
    (worker,) = [message.worker for message in before if isinstance(message, Began)]
    os.kill(worker.pid, signal.SIGKILL)
    after = listen(trainer, ended(101))
    assert after[-1] == Done(101)
    # Nobody needs the checkpoints any more; Ray Tune ends a trial a moment after its last result.
    eventually(lambda: not list((folder / "storage").rglob("*.pt")))
    again = [isinstance(message, Again) for message in after].index(True)
    assert after[again] == Again(101, "its worker died")
    (second,) = [message.worker for message in after if isinstance(message, Began)]
    assert second.pid != worker.pid
    curve = points(after[again:])
    assert [point.step for point in curve] == [0, *wanted.variant.spec.training.evaluation_steps()]
    # What was told before the checkpoint is told again, not trained again: its seconds are the same.
    first = [point for point in points(before) if point.step <= 300]
    assert curve[: len(first)] == first or losses(curve[1 : len(first)]) == losses(first[1:])
    assert [point.seconds for point in curve[: len(first)]] == [point.seconds for point in first]
    with LocalEngine(folder / "cache", workers=1) as local:
        local.submit(job(1, wanted))
        assert losses(points(listen(local, ended(1)))) == losses(curve)


def test_what_does_not_fit_into_memory_or_raises_fails_alone(trainer: RayEngine, folder: Path) -> None:
    fine, huge = trial(folder, steps=2, evaluations=2), trial(folder, batch_size=10**13)
    trainer.submit(job(201, huge))
    trainer.submit(Job(202, (JobMember('{"no": "variant"}', 0),), "f"))
    trainer.submit(job(203, fine))
    heard = listen(trainer, ended(201, 202, 203))
    broken = {message.number: message for message in heard if isinstance(message, Broken)}
    assert set(broken) == {201, 202}
    assert broken[201].reason.startswith("MemoryError: ")
    assert "Traceback" in broken[201].trace, "it would not fit elsewhere: no second attempt"
    assert broken[202].reason.startswith("ValidationError")
    assert Done(203) in heard


def test_a_member_that_is_to_stop_stops(trainer: RayEngine, folder: Path) -> None:
    trainer.submit(job(301, trial(folder, steps=10**6)))
    listen(trainer, lambda heard: len(heard) > 0)
    trainer.stop(301, 0)
    assert listen(trainer, ended(301))[-1] == Done(301)


class KillsNode(Log):
    """Kills a node at the first point of the third trial, when others have ended."""

    def __init__(self, kill: Callable[[], None]) -> None:
        super().__init__()
        self.kill: Callable[[], None] | None = kill

    def measured(self, trial: Trial, point: Point, member: int) -> None:
        if len(self.outcomes) >= 2 and self.kill is not None and point.step:
            self.kill()
            self.kill = None


def test_a_node_killed_in_the_middle_loses_no_finished_trial_and_trains_none_twice(
    cluster: Cluster, trainer: RayEngine, folder: Path, store: Store
) -> None:
    joined = cluster.add_node(**node(1))  # a machine joins, and it is the one that will die
    cluster.wait_for_nodes()
    log = KillsNode(lambda: cluster.remove_node(joined, allow_graceful=False))
    training = {**SPACE["training"], "steps": 400, "evaluations": 10}
    result = drive(trainer, store, folder, log, training=training)
    assert log.kill is None
    assert (result.trained, result.trials) == (6, 6)
    finished = [(name, seed) for what, name, seed in log.told if what == "finished"]
    assert len(finished) == len(set(finished)) == 6
    for what, name, seed in log.told:
        if what == "finished":
            last = max(i for i, told in enumerate(log.told) if told == ("started", name, seed))
            assert last < log.told.index(("finished", name, seed)), "nothing finished was begun again"
    records = store.trials([planned.key for planned in store.study("sample").planned]).values()
    assert sum(record.attempts - 1 for record in records) == sum(what == "lost" for what, _, _ in log.told)


DRIVE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from engine_samples import ENVIRONMENT, SPACE, Log, planner
from ablate.engine.ray.engine import RayEngine
from ablate.engine.study import run_study
from ablate.spec.resources import ResourcesSpec
from ablate.store import open_store
here = Path.cwd()
training = {**SPACE["training"], "steps": 300}
with open_store(sys.argv[2]) as store, RayEngine(
    here / "cache", "cpu", ResourcesSpec(memory=0.1), address=sys.argv[3]
) as engine:
    result = run_study(planner(here, training=training), store, engine, ENVIRONMENT, Log())
    print(result.trained, result.reused)
"""


def test_a_killed_driver_goes_on_where_it_was(
    cluster: Cluster, trainer: RayEngine, folder: Path, store: Store, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", DRIVE, str(Path(__file__).parent), str(tmp_path / "store.db"), cluster.address]

    def finished() -> dict[str, TrialOutcome]:
        keys = [planned.key for planned in store.study("sample").planned] if store.studies() else []
        return {key: record for key, record in store.trials(keys).items() if record.state is TrialState.FINISHED}

    cluster.add_node(**node(2))  # warm actors of the shared engine keep the cores of the others
    cluster.wait_for_nodes()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
        while len(done := finished()) < 2:
            assert driver.poll() is None
            time.sleep(0.05)
        driver.kill()
    done = finished()
    result = drive(trainer, store, folder, training={**SPACE["training"], "steps": 300})
    assert (result.trained, result.reused) == (6 - len(done), len(done))
    assert len(finished()) == 6
    assert {key: finished()[key].finished_at for key in done} == {key: done[key].finished_at for key in done}

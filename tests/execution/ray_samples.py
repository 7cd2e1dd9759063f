"""A small Ray cluster on this machine, and what tests of engines do with jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine_samples import SPACE, planner
from ray.cluster_utils import Cluster

from ablate.execution.engine import Engine
from ablate.execution.protocol import Broken, Done, Happened, Job, JobMember, Message
from ablate.planning.plan import Trial
from ablate.planning.planner import make_plan
from ablate.spec.space_fields import ResourcesSpec
from ablate.store import Store
from ablate.store.records import USAGE
from ablate.training.events import Measurement

DRIVE = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]).parent)]
from engine_samples import ENVIRONMENT, Log, planner
from ray_samples import ANYWHERE, LONG
from ablate.execution.options import RunOptions
from ablate.execution.ray.engine import RayEngine
from ablate.execution.driver import run_study
from ablate.store import open_store
here = Path.cwd()
store, address, *plugins = sys.argv[2:]
with (
    open_store(store) as opened,
    RayEngine(
        RunOptions(cache=here / "cache", device="cpu", resources=ANYWHERE, address=address, plugins=plugins), "sample"
    ) as engine,
):
    run_study(planner(here, **LONG), opened, engine, ENVIRONMENT, Log())
"""
"""A driver in a process of its own: its arguments are the folder of this file, a store, an address and plugins."""
HOLD = """
import time
from pathlib import Path
from ablate.execution.ray.trainable import JobTrainable
save = JobTrainable.save_checkpoint
def wait_and_save(self, folder):
    reached = self._state["events"][-1][1]["step"]
    while Path({file!r}).exists() and self._job.number != {but} and reached >= {step}:
        time.sleep(0.01)
    save(self, folder)
JobTrainable.save_checkpoint = wait_and_save
"""
"""A plugin: as long as a file exists, all jobs but one wait at a step, before they save a checkpoint."""
ANYWHERE = ResourcesSpec(cpus=0.5, memory=0.1, custom={"late": 1}, checkpoint_every=20, checkpoint_dir="checkpoints")
LONG = {
    "training": {**SPACE["training"], "steps": 140, "evaluations": 14},
    "design": {"kind": "leave_one_out", "seeds": 1},
}


POPULATION: dict[str, Any] = {
    "design": {
        "kind": "population",
        "size": 4,
        "every": 20,
        "seeds": 1,
        "ranges": {"training.optimizer.lr": [1e-6, 1e-1]},
    },
    "training": {**SPACE["training"], "steps": 100, "evaluations": 10},
}


@contextmanager
def small_cluster() -> Iterator[Cluster]:
    """A head that trains nothing, without the processes of Ray's that no test needs."""
    head = node(0) | {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield made
    finally:
        made.shutdown()


def node(cores: int, **options: Any) -> dict[str, Any]:
    """What a machine of the cluster is started with."""
    return {"num_cpus": cores, "num_gpus": 0, "object_store_memory": 80_000_000, **options}


@contextmanager
def joined(cluster: Cluster, cores: int, **options: Any) -> Iterator[Any]:
    """A machine that is in the cluster for a while."""
    made = cluster.add_node(**node(cores, **options))
    yield made
    if made in cluster.worker_nodes:
        cluster.remove_node(made, allow_graceful=False)


def trial(folder: Path, **training: object) -> Trial:
    """A short trial with many points, unless `training` says otherwise."""
    changed = {**SPACE["training"], "steps": 120, "evaluations": 12, **training}
    return make_plan(planner(folder, training=changed)).trials[0]


def job(number: int, wanted: Trial) -> Job:
    """A job of one trial."""
    variant = wanted.variant
    population = variant.spec.training.population
    member = JobMember(variant.spec.model_dump_json(), wanted.seed, population=population)
    return Job(number, (member,), variant.fingerprint)


def listen(engine: Engine, until: Callable[[list[Message]], bool], timeout: float = 600.0) -> list[Message]:
    """The events of an engine; waits until there are any."""
    heard: list[Message] = []
    deadline = time.monotonic() + timeout
    while not until(heard):
        assert time.monotonic() < deadline, heard
        heard += engine.poll(0.05)
    return heard


def ended(*numbers: int) -> Callable[[list[Message]], bool]:
    """Whether these jobs have ended."""
    return lambda heard: {m.number for m in heard if isinstance(m, Done | Broken)} >= set(numbers)


def points(messages: list[Message]) -> list[Measurement]:
    """The curve in these events."""
    return [m.event for m in messages if isinstance(m, Happened) and isinstance(m.event, Measurement)]


def losses(curve: list[Measurement]) -> list[tuple[int, str, str]]:
    """A curve without its seconds; as text, because nan is not equal to itself."""
    return [(point.step, str(point.train_loss), str(point.metrics)) for point in curve]


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
            recorded(store, trial.key),
        )
        for trial in planned
    }


def recorded(store: Store, key: str) -> list[tuple[int, dict[str, Any]]]:
    """What a trial recorded of itself, without its use of the machine, which depends on how busy that is."""
    kept = [
        (one.step, {name: values for name, values in one.values.items() if name != USAGE})
        for one in store.recordings(key)
    ]
    return [(step, values) for step, values in kept if values]

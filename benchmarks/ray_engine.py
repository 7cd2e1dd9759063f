"""Overhead of the Ray engine for each of 100 tiny trials, compared with Ray Tune alone with warm and with new actors.

Both engines train the same jobs, and their losses are compared. Jobs that end at once show the overhead of the Ray
engine besides training: the round trip from the driver to an actor.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from ablate.execution.engine import Engine
from ablate.execution.local import LocalEngine
from ablate.execution.options import RunOptions
from ablate.execution.protocol import Broken, Done, Happened, Job, JobMember
from ablate.machine import available_cores
from ablate.planning.plan import Plan
from ablate.planning.planner import Planner, make_plan
from ablate.spec.space import SpaceSpec
from ablate.spec.space_fields import ResourcesSpec
from ablate.training.events import Measurement

TRIALS = 100
FRESH = 6
"""Number of trials with new actors, which take seconds each."""

SPACE = {
    "name": "tiny",
    "question": "What does an engine cost?",
    "task": {"kind": "copy", "span": 4},
    "model": {"family": "decoder", "depth": 1, "width": 8, "heads": 2, "block": "pre_ln"},
    "training": {"steps": 2, "batch_size": 2, "evaluations": 1, "optimizer": {"kind": "adamw", "lr": 1e-3}},
    "switches": {"values": {"dense": {}, "identity": {"block.mixer.value": "identity"}}},
    "design": {"kind": "leave_one_out", "seeds": 1},
    "objective": {"metric": "val_loss", "direction": "minimize", "margin": 0.1},
}


def main(smoke: bool = False) -> None:
    """Print the seconds per trial, one row for each way."""
    trials, few = (3, 2) if smoke else (TRIALS, FRESH)
    os.chdir(tempfile.mkdtemp())
    cache = Path("cache").absolute()
    plan = make_plan(Planner(SpaceSpec.model_validate(SPACE), cache, lambda line: None))
    import ray

    from ablate.execution.ray.cluster import connect
    from ablate.execution.ray.engine import RayEngine

    size = 1 if smoke else available_cores()
    with LocalEngine(RunOptions(cache=cache, device="cpu", workers=size)) as local:
        trained, losses = through(local, plan, trials)
    connect("local", 1)  # all on one cluster
    resources = ResourcesSpec(memory=0.1)
    with RayEngine(RunOptions(cache=cache, device="cpu", resources=resources, address="local")) as ray_engine:
        ours, same = through(ray_engine, plan, trials)
        empty = nothing(ray_engine, trials)
    assert same == losses, "the engines must give the same losses"
    floor = bare(trials, reuse=True, concurrent=size)
    fresh = bare(few, reuse=False, concurrent=size)
    ray.shutdown()
    rows = [
        (f"local engine, {size} workers", trained),
        (f"Ray engine, {size} actors", ours),
        (f"Ray engine, {size} actors, jobs that end at once", empty),
        ("Ray Tune alone, warm actors, trials that do nothing", floor),
        ("Ray Tune alone, a new actor for each, trials that do nothing", fresh),
    ]
    print(f"{'':64} {'s/trial':>8} {'median':>8} {'9 of 10 within':>18}")
    for name, ends in rows:
        gaps = sorted(later - earlier for earlier, later in pairwise(ends))
        low, high = gaps[len(gaps) // 20], gaps[-1 - len(gaps) // 20]
        print(f"{name:64} {mean(ends):8.3f} {statistics.median(gaps):8.3f} {low:8.3f} to {high:6.3f}")
    print(f"\nThe Ray engine takes {mean(empty):.3f} s for each job besides training; the target is at most 0.1.")
    print(f"Of that {mean(floor):.3f} s are due to Ray Tune itself.")


def mean(ends: list[float]) -> float:
    """Mean seconds between ends, without the first, which waits for actors to start."""
    return (ends[-1] - ends[0]) / (len(ends) - 1)


def through(engine: Engine, plan: Plan, count: int) -> tuple[list[float], dict[int, float]]:
    """Train `count` trials; returns when each ended, and final losses by number."""
    variant = plan.trials[0].variant
    ends: list[float] = []
    losses: dict[int, float] = {}
    submitted = 0
    while len(ends) < count:
        while submitted < count and engine.room() > 0:
            submitted += 1
            member = JobMember(variant.spec.model_dump_json(), submitted)
            engine.submit(Job(submitted, (member,), variant.fingerprint))
        for message in engine.poll(0.1):
            match message:
                case Happened(number, Measurement() as point):
                    losses[number] = point.metrics["val_loss"][0]
                case Done():
                    ends.append(time.monotonic())
                case Broken():
                    raise RuntimeError(message)
    return ends, losses


def nothing(engine: Engine, count: int) -> list[float]:
    """Run `count` jobs without a variant, which an actor rejects at once; returns when each ended."""
    ends: list[float] = []
    submitted = 0
    while len(ends) < count:
        while submitted < count and engine.room() > 0:
            submitted += 1
            engine.submit(Job(TRIALS + submitted, (JobMember("{}", 0),), "none"))
        ends += [time.monotonic() for message in engine.poll(0.1) if isinstance(message, Broken)]
    return ends


def bare(count: int, *, reuse: bool, concurrent: int) -> list[float]:
    """Run Ray Tune trials that do nothing; returns when each ended."""
    from ray import tune

    ends: list[float] = []

    class Nothing(tune.Trainable):
        def setup(self, config: dict[str, object]) -> None:
            import torch  # noqa: F401 - what an actor of ours imports too

        def step(self) -> dict[str, object]:
            return {"done": True}

        def reset_config(self, new_config: dict[str, object]) -> bool:
            return True

    class Ends(tune.Callback):
        on_trial_complete: Callable[..., None] = lambda self, **info: ends.append(time.monotonic())

    tune.run(
        Nothing,
        num_samples=count,
        reuse_actors=reuse,
        max_concurrent_trials=2 * concurrent,
        callbacks=[Ends()],
        storage_path=tempfile.mkdtemp(),
        verbose=0,
    )
    return ends


if __name__ == "__main__":
    main()

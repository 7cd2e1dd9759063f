"""One trial of 10 million parameters on a CPU that is killed again and again, compared with one left alone.

`python -m benchmarks killed_trial [--engine ray] [--kills N] [--ranks N] [--steps N] [--width N] [--seed N]`. With more
than one rank several processes train the trial together, and any of them is killed with signal 9. `--engine ray` starts
a Ray cluster of one node. The exit code is 1 if the curve at the end is not that of the trial left alone, or if the
trial has failed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from ablate.execution.driver import run_study
from ablate.execution.engine import Engine, Observer
from ablate.execution.environment import describe_environment
from ablate.execution.local import LocalEngine
from ablate.execution.options import RunOptions
from ablate.planning.plan import Trial
from ablate.planning.planner import Planner, make_plan
from ablate.spec.space import SpaceSpec
from ablate.spec.space_fields import ResourcesSpec
from ablate.store import open_store
from ablate.store.records import CurvePoint

_EVERY = 2
"""Steps between checkpoints."""
_APART = 2 * _EVERY + 1
"""Steps between two kills, so that a checkpoint is written between them."""
_LONGEST_WAIT = 0.3
"""Seconds from the message that a step was reached to the kill, at most."""
_PROCESSES = ("ablate.execution.worker", "ablate.execution.ranks", "ray::JobTrainable")


class _Killer(Observer):
    """Kills a process of a trial when the trial has reached certain steps.

    Args:
        at: The steps.
        numbers: Chooses the process.
    """

    def __init__(self, at: Sequence[int], numbers: random.Random) -> None:
        self._at = list(at)
        self._numbers = numbers
        self.killed = 0
        self.lost_count = 0

    def moved(self, trial: Trial, step: int, train_loss: float) -> None:
        """Kill a process if the trial has come far enough."""
        if self._at and step >= self._at[0]:
            time.sleep(self._numbers.uniform(0.0, _LONGEST_WAIT))  # its processes go on: any moment of steps to come
            victims = [one for one in psutil.Process().children(recursive=True) if _trains(one)]
            if victims:
                self._numbers.choice(victims).kill()
                self._at.pop(0)
                self.killed += 1

    def lost(self, trial: Trial, reason: str) -> None:
        """Count what the engine has noticed."""
        self.lost_count += 1


def _trains(process: psutil.Process) -> bool:
    try:
        return any(word.startswith(_PROCESSES) for word in process.cmdline())
    except psutil.Error:
        return False


def _space(steps: int, width: int) -> SpaceSpec:
    return SpaceSpec.model_validate(
        {
            "name": "killed",
            "question": "Does the curve survive?",
            "task": {"kind": "recall", "context": 32, "pairs": 4, "symbols": 512, "validation_rows": 16},
            "model": {"family": "decoder", "depth": 5, "width": width, "heads": 4, "block": "pre_ln", "dropout": 0.1},
            "training": {
                "steps": steps,
                "batch_size": 4,
                "optimizer": {"kind": "adamw", "lr": 1e-3},
                "evaluations": 10,
            },
            "switches": {"rate": {"usual": {}, "high": {"training.optimizer.lr": 2e-3}}},
            "design": {"kind": "grid", "seeds": 1},
            "objective": {"metric": "val_loss", "direction": "minimize", "margin": 0.05},
        }
    )


def _engine(name: str, folder: Path, ranks: int) -> Engine:
    storage = folder / "checkpoints"
    if name == "ray":
        from ablate.execution.ray.engine import RayEngine  # Ray is an extra

        resources = ResourcesSpec(checkpoint_every=_EVERY, checkpoint_dir=str(storage), cpus=1 / ranks, memory=1.0)
        return RayEngine(
            RunOptions(cache=folder / "cache", device="cpu", resources=resources, address="local", workers=1),
            name="killed",
            ranks=ranks,
        )
    resources = ResourcesSpec(checkpoint_every=_EVERY)
    return LocalEngine(
        RunOptions(cache=folder / "cache", device="cpu", workers=1, resources=resources),
        checkpoints=storage / "killed",
        ranks=ranks,
    )


def _run(
    folder: Path, space: SpaceSpec, engine_name: str, ranks: int, observer: Observer
) -> tuple[list[CurvePoint], str]:
    """The curve of the baseline and the states of both trials, in a store and folders of its own."""
    folder.mkdir()
    planner = Planner(space, folder / "cache", lambda line: None)
    trials = make_plan(planner).trials
    engine = _engine(engine_name, folder, ranks)
    with open_store(folder / "store.db") as store, engine:
        run_study(planner, store, engine, describe_environment("cpu"), observer)
        curves = store.curves([trial.key for trial in trials])
        states = [record.state.value for record in store.trials([trial.key for trial in trials]).values()]
    return [point for trial in trials for point in curves[trial.key]], ", ".join(states)


def campaign(arguments: Sequence[str]) -> int:
    """Train a trial twice, once alone and once killed, and print how far the curves are apart."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks killed_trial", description=__doc__)
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, help="unless given, as many as the kills need")
    parser.add_argument("--width", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    numbers = random.Random(asked.seed)
    gaps = [numbers.randint(_APART, _APART + 2) for _ in range(asked.kills)]
    at = [sum(gaps[: index + 1]) for index in range(asked.kills)]
    steps = asked.steps or at[-1] + _APART
    space = _space(steps, asked.width)
    killer = _Killer(at, numbers)
    with tempfile.TemporaryDirectory(prefix="ablate-killed-") as name:
        begin = time.monotonic()
        alone, _ = _run(Path(name) / "alone", space, asked.engine, asked.ranks, Observer())
        between = time.monotonic()
        found, states = _run(Path(name) / "killed", space, asked.engine, asked.ranks, killer)
        end = time.monotonic()
    pairs = list(zip(alone, found, strict=False))
    worst = max((abs((a.val_loss or 0.0) - (b.val_loss or 0.0)) for a, b in pairs), default=float("inf"))
    same = [point.step for point in alone] == [point.step for point in found] and worst == 0.0
    fell = (alone[0].val_loss or 0.0) - min(point.val_loss or 0.0 for point in alone)
    print(f"{killer.killed} kills, {killer.lost_count} noticed; {states}")
    print(f"{asked.engine} engine, {asked.ranks} processes a trial, {steps} steps")
    print(f"largest difference of the validation losses {worst:.3g} nats, of curves that fall by {fell:.2f}")
    print(f"{between - begin:.0f} s left alone, {end - between:.0f} s with kills")
    return 0 if same and killer.killed == asked.kills and states == "finished, finished" else 1


if __name__ == "__main__":
    sys.exit(campaign(sys.argv[1:]))

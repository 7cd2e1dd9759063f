"""The driver alone: trials per second and memory, with simulated trials.

Planner, design, driver and store are real; only the engine is simulated. `python -m benchmarks driver`.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from pathlib import Path

import psutil

from ablate.execution.driver import run_study
from ablate.execution.engine import Engine, Observer
from ablate.execution.protocol import Done, Happened, Job, Message
from ablate.planning.plan import Plan, Trial
from ablate.planning.planner import Planner
from ablate.spec.space import SpaceSpec
from ablate.store import Environment, TrialOutcome, open_store
from ablate.training.events import Measurement

_HERE = Environment({"python": "3.x"}, "cpu: none", "here", None, None, "benchmarks driver")


class InstantEngine(Engine):
    """Reports every job as trained at once."""

    size = 2

    def __init__(self) -> None:
        self._jobs: list[int] = []

    def admit(self, plan: Plan) -> None:
        """Accept any plan."""

    def room(self) -> int:
        """Free seats."""
        return self.size - len(self._jobs)

    def submit(self, job: Job) -> None:
        """Store the number of a job."""
        self._jobs.append(job.number)

    def stop(self, number: int, member: int) -> None:
        """Do nothing: the job has already ended."""

    def poll(self, timeout: float) -> list[Message]:
        """Report two points and the end of every job."""
        jobs, self._jobs = self._jobs, []
        messages: list[Message] = []
        for number in jobs:
            loss = 3.0 + number % 7 / 100
            messages += [Happened(number, Measurement(0, 0.0, 0, 0.0, [float("nan")], {"val_loss": [5.0]}))]
            messages += [Happened(number, Measurement(9, 1.0, 1_000, 1e9, [loss], {"val_loss": [loss]})), Done(number)]
        return messages

    def close(self) -> None:
        """Do nothing: no job is running."""


class _Milestones(Observer):
    """Prints rate and memory when 1,000, 10,000 ... trials have ended, measured from the end of the first."""

    def __init__(self) -> None:
        self._ended = 0
        self._begun = 0.0
        self._start = 0.0

    def ended(self, trial: Trial, outcome: TrialOutcome) -> None:
        """Print a row at milestones."""
        self._ended += 1
        if self._ended == 1:
            self._begun, self._start = time.perf_counter(), megabytes()
            print(f"{self._start:.0f} MB are used by Python, torch and the plan before the first trial ends\n")
            print(f"{'trials':>8} {'trials/s':>9} {'MB':>7} {'MB grown':>9}", flush=True)
        elif self._ended in (1_000, 10_000, 20_000, 50_000, 100_000):
            rate, held = self._ended / (time.perf_counter() - self._begun), megabytes()
            print(f"{self._ended:>8,} {rate:>9.0f} {held:>7.0f} {held - self._start:>9.1f}", flush=True)


def megabytes() -> float:
    """Resident memory of this process in MiB."""
    return float(psutil.Process().memory_info().rss) / 2**20


def grid_space(texts: Path, seeds: int = 1, sides: tuple[int, ...] = (10, 10, 10, 10)) -> SpaceSpec:
    """A grid of distinct models (10,000 by default) with a task on small texts."""
    texts.mkdir(exist_ok=True)
    for name in "abcd":
        (texts / name).write_text(f"This is text {name}, of some length. " * 40, encoding="utf-8")
    paths = ("block.norm.eps", "block.gains.mixer_branch.init", "block.gains.mlp_branch.init", "block.mlp.ratio")
    switches = {
        path.replace(".", "_"): {
            f"s{n}": {path: (n + 1) * (1e-6 if path.endswith("eps") else 0.25)} for n in range(side)
        }
        for path, side in zip(paths, sides, strict=True)
    }
    return SpaceSpec.model_validate(
        {
            "name": "grid",
            "question": "How fast is the driver?",
            "task": {
                "kind": "language_model",
                "data": f"file:{texts}",
                "tokenizer": {"kind": "bytes"},
                "context": 8,
                "validation_windows": 1,
            },
            "model": {"family": "decoder", "depth": 1, "width": 8, "heads": 2, "block": "pre_ln"},
            "training": {"steps": 9, "batch_size": 2, "evaluations": 1, "optimizer": {"kind": "adamw", "lr": 1e-3}},
            "switches": switches,
            "design": {"kind": "grid", "seeds": seeds, "most": max(10_000, math.prod(sides))},
            "objective": {"metric": "val_loss", "direction": "minimize", "margin": 0.1},
        }
    )


def drive(sides: tuple[int, ...], seeds: int) -> None:
    """Run a grid with these numbers of settings of the switches."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        space = grid_space(folder / "texts", seeds, sides)
        with open_store(folder / "store.db") as store, InstantEngine() as engine:
            run_study(Planner(space, folder / "cache", lambda line: None), store, engine, _HERE, _Milestones())


def main(smoke: bool = False) -> None:
    """Run 100,000 trials (or the environment variable TRIALS) and print a row at each milestone."""
    trials = int(os.environ.get("TRIALS", "100000"))
    seeds = max(1, trials // 10_000)
    drive((2, 2, 2, 2), 1) if smoke else drive((10, 10, 10, max(2, trials // (1_000 * seeds))), seeds)


if __name__ == "__main__":
    main()

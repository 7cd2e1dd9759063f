"""The driver alone: trials a second, and its memory, with trials that train in no time.

Planner, design, driver and store are the real ones; only the engine is not. `python -m benchmarks driver`.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import psutil

from ablate.engine.base import Engine
from ablate.engine.observer import Observer
from ablate.engine.plan import Plan, Planner, Trial
from ablate.engine.study import run_study
from ablate.engine.worker import Done, Happened, Job, Message
from ablate.spec.space import SpaceSpec
from ablate.store import Environment, TrialOutcome, open_store
from ablate.training.events import Point

_HERE = Environment({"python": "3.x"}, "cpu: none", "here", None, None, "benchmarks driver")


class InstantEngine(Engine):
    """Says of every job at once that it has trained."""

    size = 2

    def __init__(self) -> None:
        self._jobs: list[int] = []

    def admit(self, plan: Plan) -> None:
        """Everything fits."""

    def room(self) -> int:
        """As long as one job of two is not asked after."""
        return self.size - len(self._jobs)

    def submit(self, job: Job) -> None:
        """Remember its number."""
        self._jobs.append(job.number)

    def stop(self, number: int, member: int) -> None:
        """It has ended already."""

    def poll(self, timeout: float) -> list[Message]:
        """Two points and the end of every job."""
        jobs, self._jobs = self._jobs, []
        said: list[Message] = []
        for number in jobs:
            loss = 3.0 + number % 7 / 100
            said += [Happened(number, Point(0, 0.0, 0, 0.0, [float("nan")], {"val_loss": [5.0]}))]
            said += [Happened(number, Point(9, 1.0, 1_000, 1e9, [loss], {"val_loss": [loss]})), Done(number)]
        return said

    def close(self) -> None:
        """Nothing runs."""


class _Milestones(Observer):
    """Looks at the clock and the memory when 1, 1,000, 10,000 ... trials have ended."""

    def __init__(self) -> None:
        self.ended_so_far = 0
        self.seen: list[tuple[int, float, float]] = []

    def ended(self, trial: Trial, outcome: TrialOutcome) -> None:
        """Look, now and then."""
        self.ended_so_far += 1
        if self.ended_so_far in (1, 1_000, 10_000, 100_000):
            megabytes = psutil.Process().memory_info().rss / 2**20
            self.seen.append((self.ended_so_far, time.perf_counter(), megabytes))


def grid_space(texts: Path, seeds: int = 1, sides: tuple[int, ...] = (10, 10, 10, 10)) -> SpaceSpec:
    """A grid of points that are all different models (10,000 of them as it is), over some small texts."""
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
            "design": {"kind": "grid", "seeds": seeds},
            "objective": {"metric": "val_loss", "direction": "minimize", "margin": 0.1},
        }
    )


def drive(trials: int) -> list[tuple[int, float, float]]:
    """Drive a grid of so many trials; (trials ended, seconds, megabytes) at 1, 1,000, 10,000 ..."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seeds = max(1, trials // 10_000)
        sides = (10, 10, 10, max(2, trials // (1_000 * seeds)))
        space = grid_space(folder / "texts", seeds, sides)
        watch = _Milestones()
        with open_store(folder / "store.db") as store, InstantEngine() as engine:
            run_study(Planner(space, folder / "cache", lambda line: None), store, engine, _HERE, watch)
    return watch.seen


def main() -> None:
    """Print a row for each milestone."""
    trials = int(os.environ.get("TRIALS", "100000"))
    seen = drive(trials)
    _, begun, start = seen[0]
    print(f"{'trials':>8} {'trials/s':>9} {'MB':>7} {'MB grown':>9}")
    for count, moment, megabytes in seen[1:]:
        print(f"{count:>8,} {count / (moment - begun):>9.0f} {megabytes:>7.0f} {megabytes - start:>9.1f}", flush=True)
    print(f"\n{start:.0f} MB hold Python, torch and the plan of {trials:,} trials before the first of them ends.")


if __name__ == "__main__":
    main()

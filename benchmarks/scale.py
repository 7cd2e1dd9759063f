"""The driver alone under the load of 1,000 GPUs: 1,000 concurrent jobs, simulated trials, real designs and stores.

Prints trials per second by wall time and by processor time of driver and database server, also for each tenth of the
trials with the memory of the driver, and the resulting limit for a cluster. TRIALS=1000000 simulates a million trials.
`python -m benchmarks scale`.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from ablate.execution.driver import run_study
from ablate.execution.engine import Observer
from ablate.execution.protocol import Done, Happened, Message
from ablate.planning.plan import Trial
from ablate.planning.planner import Planner
from ablate.store import Environment, TrialOutcome, open_store
from ablate.training.events import Measurement
from benchmarks.driver import InstantEngine, grid_space, megabytes

GPUS = 1_000
PACK = 16
"""Trials in a job, for the estimate of what a cluster needs."""
_HERE = Environment({"python": "3.x"}, "cuda: none", "head", None, None, "benchmarks scale")


class ManyJobs(InstantEngine):
    """Holds 1,000 jobs; each poll ends a hundred of them, with a curve of eleven points (the default)."""

    size = GPUS

    def poll(self, timeout: float) -> list[Message]:
        """End the oldest jobs."""
        ended, self._jobs = self._jobs[:100], self._jobs[100:]
        return [message for number in ended for message in _messages(number)]


def _messages(number: int) -> Iterator[Message]:
    for step in range(11):
        loss = 5.0 - 0.2 * step + number % 7 / 100
        yield Happened(number, Measurement(step, 1.0 * step, 1_000 * step, 1e9 * step, [loss], {"val_loss": [loss]}))
    yield Done(number)


class Tenths(Observer):
    """Prints rate by processor time and memory after each tenth of the trials, which would show a falling rate."""

    def __init__(self, trials: int) -> None:
        self._tenth = max(1, trials // 10)
        self._ended, self._since = 0, time.process_time()

    def ended(self, trial: Trial, outcome: TrialOutcome) -> None:
        """Print a row after each tenth."""
        self._ended += 1
        if self._ended == 1:
            self._since = time.process_time()
        elif self._ended % self._tenth == 0:
            now = time.process_time()
            print(f"  {self._ended:>10,} {self._tenth / (now - self._since):>9.0f} {megabytes():>7,.0f} MB", flush=True)
            self._since = now


def main(smoke: bool = False) -> None:
    """Print a row for each store, and the estimate for a cluster."""
    trials = int(os.environ.get("TRIALS", "10000"))
    sides = (2, 2, 2, 2) if smoke else (10, 10, 10, max(2, trials // 1_000))
    trials = math.prod(sides)
    print(f"{'store':12} {'trials':>9} {'trials/s':>9} {'of CPU':>9} {'server CPU':>11} {'bytes/trial':>12}")
    slowest = float("inf")
    for name, where in (("SQLite", ""),) if smoke else _stores():
        wall, own, server, size = _drive(sides, where)
        slowest = min(slowest, trials / max(own, server))
        print(
            f"{name:12} {trials:>9,} {trials / wall:>9.0f} {trials / own:>9.0f} "
            f"{trials / server if server else 0:>11.0f} {size / trials:>12,.0f}",
            flush=True,
        )
    print(f"\n{GPUS:,} GPUs, a pack of {PACK} on each, keep such a driver busy when a job takes less than")
    print(f"{GPUS * PACK / slowest:.0f} s; a million trials take it {1e6 / slowest / 3600:.1f} h of processor time.")


def _drive(sides: tuple[int, ...], where: str) -> tuple[float, float, float, int]:
    """Wall seconds, processor seconds of driver and server, and growth of the store in bytes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        where = where or str(folder / "store.db")
        planner = Planner(grid_space(folder / "texts", 1, sides), folder / "cache", lambda line: None)
        planner.design()
        begun, own, server = time.perf_counter(), time.process_time(), _servers()
        with open_store(where) as store, ManyJobs() as engine:
            run_study(planner, store, engine, _HERE, Tenths(math.prod(sides)))
        file = folder / "store.db"
        size = sum(path.stat().st_size for path in folder.glob("store.db*")) if file.exists() else 0
        return time.perf_counter() - begun, time.process_time() - own, _servers() - server, size


def _servers() -> float:
    """Processor seconds of all descendants of this process."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # ended processes are counted by their parents
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _stores() -> Iterator[tuple[str, str]]:
    yield "SQLite", ""
    import pytest

    from tests import postgres

    try:
        with postgres.server() as url:
            yield "PostgreSQL", url
    except pytest.skip.Exception as reason:
        print(f"PostgreSQL   {reason}")


if __name__ == "__main__":
    main()

"""Overheads of the platform compared with targets: storing, a trial beyond its steps, reading a large store.

All are timed by wall time, several times in turns; the table shows the median and the spread. The large store is
generated once and kept in the folder for temporary files. `python -m benchmarks commands` times whole commands.
"""

from __future__ import annotations

import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.big_store import big_store
from benchmarks.driver import grid_space

_TIMES = int(os.environ.get("TIMES", "7"))
_RUN = 10
SIZES = {"usual": "20 variants x 5 seeds", "wide": "1,000 variants x 10 seeds"}
"""Sizes of two studies of the large store."""
STUDIES = tuple(SIZES)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: (wall, processor) seconds of each repetition."""

    what: str
    target: float
    taken: list[tuple[float, float]]

    def __str__(self) -> str:
        walls, cpus = zip(*self.taken, strict=True)
        median = statistics.median(walls)
        word = "" if median <= self.target else "  missed"
        numbers = self.target, median, min(walls), max(walls), statistics.median(cpus)
        return f"{self.what:<62} {' '.join(map(_ms, numbers))}{word}"


def main(smoke: bool = False) -> None:
    """Print a line for each target: the target; median, minimum and maximum wall time; median processor time."""
    times, trials, studies = (1, 200, STUDIES[:1]) if smoke else (_TIMES, 100_000, STUDIES)
    print(f"{'milliseconds':<62} {'target':>9} {'median':>9} {'least':>9} {'most':>9} {'cpu':>9}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rows in (
            _storing(folder, 20 if smoke else 500),
            _training(folder, seeds=1 if smoke else 4),
            _reading(times, trials, studies),
        ):
            for row in rows:
                print(row, flush=True)


def _storing(folder: Path, trials: int) -> Iterator[Row]:
    from datetime import UTC, datetime

    from ablate.spec.base import content_hash
    from ablate.store import CurvePoint, Environment, PlannedTrial, StudyDraft, VariantRecord, open_store
    from ablate.store.records import DeclaredObjective, TrialOutcome, TrialState

    here = Environment({}, "cpu", "here", None, None, "benchmarks overheads")
    curve = tuple(CurvePoint(50 * n, 0.6 * n, 51_200 * n, 1e11 * n, 5.0 - 0.1 * n, 5.0 - 0.1 * n) for n in range(20))
    now, digest = datetime.now(UTC), content_hash("variant")
    keys = [content_hash(["trial", n]) for n in range(trials)]
    taken = []
    with open_store(folder / "stored.db") as store:
        variant = VariantRecord("baseline", digest, {}, {}, 1)
        planned = [PlannedTrial(key, "baseline", seed) for seed, key in enumerate(keys)]
        objective: DeclaredObjective = {"metric": "val_loss", "direction": "minimize", "margin": 0.1}
        store.begin_study(StudyDraft("s", "", "", {}, "", objective, "baseline"), [variant], planned)
        for seed, key in enumerate(keys):
            outcome = TrialOutcome(
                *(key, digest, seed, TrialState.FINISHED, {"val_loss": 3.1}, 950, 11.4, 972_800, 1.9e12, None, ""),
                *("data", now, now, curve),
            )
            taken.append(_timed(partial(store.record_outcome, outcome, here)))
    yield Row("storing a trial with a curve of 20 points", 0.001, taken)


def _training(folder: Path, seeds: int) -> Iterator[Row]:
    import ablate
    from ablate.execution.engine import Observer
    from ablate.planning.plan import Trial
    from ablate.store.records import TrialOutcome

    class Watch(Observer):
        """Records when each trial ended, and its training time."""

        def __init__(self) -> None:
            self.ends: list[tuple[float, float, float]] = []

        def ended(self, trial: Trial, outcome: TrialOutcome) -> None:
            self.ends.append((time.perf_counter(), _processor(), outcome.seconds))

    watch = Watch()
    space = grid_space(folder / "texts", seeds=seeds, sides=(2, 2, 2, 2))
    ablate.run(space, store=folder / "run.db", workers=1, device="cpu", cache=folder / "cache", observer=watch)
    taken = []
    for first in range(0, len(watch.ends) - _RUN, _RUN):  # the driver receives ends in batches
        (begun, used, _), *ends = watch.ends[first : first + _RUN + 1]
        trained = sum(seconds for _, _, seconds in ends)
        taken.append(((ends[-1][0] - begun - trained) / _RUN, (ends[-1][1] - used) / _RUN))
    yield Row("local engine, a trial's time beyond its training steps", 0.02, taken)


def _reading(times: int, trials: int, studies: tuple[str, ...]) -> Iterator[Row]:
    from ablate.store import open_store

    big = big_store(trials)
    calls: dict[str, tuple[float, Callable[[], object]]] = {}
    with open_store(big, create=False) as store:
        keys = {name: [trial.key for trial in store.study(name).planned] for name in studies}
        for name in studies:
            chosen = keys[name]
            calls |= {
                f"query: {name}, study with variants and plan": (0.05, partial(store.study, name)),
                f"query: {name}, all {len(chosen):,} trials": (0.05, partial(store.trials, chosen)),
                f"query: {name}, curves of 100 trials": (0.05, partial(store.curves, chosen[:100])),
            }
        calls["query: one trial by a prefix of its key"] = (0.05, partial(store.trial, chosen[77][:12]))
        calls["query: all studies"] = (0.05, lambda: store.studies())
        taken = _in_turn({name: call for name, (_, call) in calls.items()}, times)
    for name, (target, _) in calls.items():
        yield Row(f"{trials:,} trials: {name}", target, taken[name])


def _in_turn(calls: Mapping[str, Callable[[], object]], times: int) -> dict[str, list[tuple[float, float]]]:
    """Time each call several times, in turns."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(times):
        for name, call in calls.items():
            taken[name].append(_timed(call))
    return taken


def _timed(call: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor seconds of a call, including its child processes."""
    begin, used = time.perf_counter(), _processor()
    call()
    return time.perf_counter() - begin, _processor() - used


def _processor() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _ms(seconds: float) -> str:
    return f"{'':>9}" if seconds == float("inf") else f"{seconds * 1e3:>9.1f}"


if __name__ == "__main__":
    main()

"""The time of a trial besides its steps: evaluation, storing curve points, checkpoints, weights.

The parts of one trial of the ready space `simplify_block` are timed in this process, on one thread: steps and
evaluations by processor time, writing by wall time. The space determines the amount of evaluation (`evaluations`,
`validation_windows`), so the overhead is what exceeds that arithmetic. A second table shows the share of evaluation
for other settings.
"""

from __future__ import annotations

import pickle
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch

from ablate.execution.attempt import Attempt
from ablate.execution.environment import describe_environment
from ablate.execution.ledger import Ledger
from ablate.planning.planner import Planner, make_plan
from ablate.spec.reading import load_space
from ablate.spec.variant import VariantSpec
from ablate.store import open_store
from ablate.trained.weights import save_weights
from ablate.training.activations import loss_on_validation, measure_insides
from ablate.training.loop import state_of
from ablate.training.members import Member
from ablate.training.pack import Pack
from benchmarks.machine import OWN_SOURCE

STEPS = 12
EVERY = 100
REPEATS = 5


def median(work: Callable[[], object], times: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Median seconds of a call."""
    seconds = []
    for _ in range(times):
        begin = clock()
        work()
        seconds.append(clock() - begin)
    return statistics.median(seconds)


def main(smoke: bool = False) -> None:
    """Print the share of each part."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            if smoke:
                _measure(Path(folder), OWN_SOURCE, steps=1, repeats=1)
            else:
                _measure(Path(folder), None, STEPS, REPEATS)
    finally:
        torch.set_num_threads(threads)


def _measure(folder: Path, data: str | None, steps: int, repeats: int) -> None:
    space = load_space("simplify_block", data=data)
    planner = Planner(space, folder / "cache", lambda line: None)
    plan = make_plan(planner)
    trial = plan.trials[0]
    spec = trial.variant.spec
    task = planner.costs.prepare(spec)
    with (
        Pack([Member(spec, trial.seed)], task, torch.device("cpu")) as pack,
        open_store(folder / "store.db") as store,
        store.lease(space.name) as lease,
    ):
        ledger = Ledger(store, lease, describe_environment("cpu"))
        ledger.begin(plan, {})
        ledger.mark_running(trial, 1)
        attempt = Attempt(trial, 1, 0, 1, datetime.now(UTC))
        numbers = iter(range(1, 10**6))
        pack.step(next(numbers))
        step = median(lambda: pack.step(next(numbers)), steps, time.process_time)
        evaluation = median(pack.point, repeats, time.process_time)
        inside = median(
            lambda: measure_insides(pack.model, loss_on_validation(task, pack.device, 1)), repeats, time.process_time
        )
        point = pack.point()
        # As for each point: through a pipe to the driver, into the curve and into the store.

        def record() -> None:
            ledger.add_point(trial, attempt.add(pickle.loads(pickle.dumps(point))))
            ledger.write_points()

        recording = median(record, 50)
        ending = median(lambda: ledger.end(attempt.outcome(), None), 1)
        checkpoint = median(lambda: torch.save(state_of(pack), folder / "state.pt"), repeats)
        weights = median(
            lambda: save_weights(folder / "w.safetensors", pack.model, 0, spec, 0, trial.variant.fingerprint),
            repeats,
        )
    trained, points = spec.training.steps, len(spec.training.evaluation_steps()) + 1
    rows = {
        f"{trained} steps": trained * step,
        f"{points} evaluations, as in the space": points * evaluation,
        f"{points} curve points sent and stored": points * recording,
        "storing the end of the trial": ending,
        f"a checkpoint every {EVERY} steps, if enabled": trained // EVERY * checkpoint,
        "final weights, if kept": weights,
    }
    whole = sum(rows.values())
    for name, seconds in rows.items():
        print(f"{name:40}{1000 * seconds:12,.1f} ms{seconds / whole:9.2%}")
    for insides, times in (("ends", 2), ("evaluations", points)):
        what = f"insides: {insides} (target 3 %)"
        print(f"{what:40}{1000 * times * inside:12,.1f} ms{times * inside / whole:9.2%}")
    windows = spec.task.model_dump()["validation_windows"]
    evaluation_arithmetic = share(spec, points, windows) * trained * step
    recording_and_more = whole - trained * step - evaluation_arithmetic
    print(f"\nBeyond the steps and the arithmetic of the evaluations (target 3 %): {recording_and_more / whole:.2%}")
    print("\nArithmetic of the evaluations relative to the steps, by settings of a space:")
    for evaluations, size in ((8, 64), (4, 64), (8, 32), (4, 32)):
        print(f"  evaluations: {evaluations}, validation_windows: {size}{share(spec, evaluations + 1, size):>10.1%}")


def share(spec: VariantSpec, points: int, windows: int) -> float:
    """Arithmetic of all evaluations relative to all steps: a training step is three forward passes."""
    return points * windows / (3 * spec.training.batch_size * spec.training.steps)


if __name__ == "__main__":
    main()

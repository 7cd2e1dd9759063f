"""The driver: submits the trials of a design to an engine, and passes their results to the store and to the design.

Only this process writes to the store. To resume a study, run it again: the driver passes the stored results to a new
design and trains only the missing trials.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ablate.execution.engine import Engine, Observer, ObserverGroup
from ablate.execution.ledger import Ledger
from ablate.execution.study_run import StudyRun
from ablate.execution.timing import Bench, time_study
from ablate.planning.memory import largest_blocks
from ablate.planning.packing import Packing
from ablate.planning.plan import Trial
from ablate.planning.planner import Planner, make_plan
from ablate.processes import StopRequest, stop_on_signal
from ablate.store import Store
from ablate.store.records import Environment, TrialOutcome


@dataclass(frozen=True, slots=True)
class StudyResult:
    """The result of a run of a study.

    `trials` is the sum of the five counts after it, unless the run was interrupted.

    Attributes:
        trials: The number of trials that its design proposed.
        trained: Trials that finished in this run.
        reused: Trials that the store already held as finished.
        failed: Trials that raised an exception or lost their worker in this run.
        diverged: Trials whose loss became infinite or NaN, in this run or before.
        pruned: Trials that the design ended early, in this run or before.
        seconds: The wall time of this run.
        interrupted: Whether the run was stopped before the end.
    """

    study: str
    trials: int
    trained: int
    reused: int
    failed: int
    diverged: int
    pruned: int
    seconds: float
    interrupted: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run stops before its study is done; the same command continues it.

    Attributes:
        trials: After this many trials have ended; None: no limit. Those in flight are dropped.
        seconds: After this time, the preparation of data included; None: no limit.
    """

    trials: int | None = None
    seconds: float | None = None


class _Limiter(Observer):
    """Asks a run to stop at its limits."""

    def __init__(self, limits: Limits, begin: float, stop: StopRequest) -> None:
        self._limits = limits
        self._begin = begin
        self._stop = stop
        self._ended = 0

    def ended(self, trial: Trial, outcome: TrialOutcome) -> None:
        self._ended += 1
        if self._limits.trials is not None and self._ended >= self._limits.trials:
            self._stop.asked = True

    def beat(self) -> None:
        if self._limits.seconds is not None and time.monotonic() - self._begin > self._limits.seconds:
            self._stop.asked = True


def run_study(
    planner: Planner,
    store: Store,
    engine: Engine,
    environment: Environment,
    observer: Observer,
    packing: Packing = Packing(most=1),  # noqa: B008 - frozen
    bench: Bench | None = None,
    limits: Limits = Limits(),
) -> StudyResult:
    """Run a space until its design has no further proposals or the run is interrupted (SIGINT or SIGTERM).

    Args:
        packing: How many trials are trained together as one program.
        bench: Where to time the variants after the trials; None: nowhere.
        limits: When to stop before the end, as an interruption does.

    Raises:
        StudyBusyError: Another process runs the same study.
        AblateError: The space, its data or the store cannot be used.
    """
    begin = time.monotonic()
    study = planner.space.name
    with store.lease(study):
        pass  # fail fast if the study is locked: preparing the data can take longer than a lease lasts
    engine.admit_blocks(*largest_blocks(planner))
    planner.seeds_before = store.seeds_before(study, planner.space.design.model_dump(mode="json")["seeds"])
    plan = make_plan(planner)
    engine.admit(plan)
    trivial = planner.trivial(plan.variants)
    with store.lease(study) as lease, stop_on_signal() as stop:
        observer = ObserverGroup(observer, _Limiter(limits, begin, stop))
        driver = StudyRun(planner, Ledger(store, lease, environment), engine, observer, lease, packing)
        driver.begin(plan, trivial)
        driver.run(stop)
        if bench is not None and not driver.busy:
            time_study(driver, plan.variants[0], bench, lambda: not stop.asked)
    counts = driver.counts
    if not driver.busy and not counts["failed"]:
        engine.complete()
    return StudyResult(
        study=study,
        trials=len(driver.trials),
        trained=counts["trained"],
        reused=counts["reused"],
        failed=counts["failed"],
        diverged=counts["diverged"],
        pruned=counts["pruned"],
        seconds=time.monotonic() - begin,
        interrupted=driver.busy,
    )

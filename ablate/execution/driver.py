"""The driver: submits the trials of a design to an engine, and passes their results to the store and to the design.

Only this process writes to the store. To resume a study, run it again: the driver passes the stored results to a new
design and trains only the missing trials.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ablate.execution.base import Engine
from ablate.execution.ledger import Ledger
from ablate.execution.observer import Observer
from ablate.execution.study_run import StudyRun
from ablate.execution.timing import Bench, time_study
from ablate.planning.memory import largest_blocks
from ablate.planning.packing import Packing
from ablate.planning.planner import Planner, make_plan
from ablate.processes import stop_on_signal
from ablate.store import Store
from ablate.store.records import Environment


@dataclass(frozen=True, slots=True)
class StudyResult:
    """The result of a run of a study.

    `trials` is the sum of the five counts after it, unless the run was interrupted.

    Attributes:
        study: The name of the study.
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


def run_study(
    planner: Planner,
    store: Store,
    engine: Engine,
    environment: Environment,
    observer: Observer,
    packing: Packing = Packing(most=1),  # noqa: B008 - frozen
    bench: Bench | None = None,
) -> StudyResult:
    """Run a space until its design has no further proposals or the run is interrupted (SIGINT or SIGTERM).

    Args:
        planner: The planner of the space.
        store: Holds the trials.
        engine: Trains the trials.
        environment: The environment of the engine.
        observer: Is notified of all events.
        packing: How many trials are trained together as one program.
        bench: Where to time the variants after the trials; None: nowhere.

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
    trivial = planner.trivial(plan.variants[0])
    with store.lease(study) as lease, stop_on_signal() as stop:
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

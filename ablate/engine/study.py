"""The driver: carries trials from a design to an engine and their results to the store and back to the design.

Only this process writes to the store. A study is resumed by running it again: what the store holds is told to a fresh
design, and only what is missing is trained.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from ablate.designs.base import Proposal
from ablate.engine.attempt import Attempt
from ablate.engine.base import Engine
from ablate.engine.interrupt import StopRequest, stop_on_signal
from ablate.engine.ledger import Ledger
from ablate.engine.observer import Observer
from ablate.engine.plan import Plan, Planner, Trial, make_plan
from ablate.engine.weights import weights_files
from ablate.engine.worker import Broken, Done, Happened, Job, Message
from ablate.errors import SpaceError, StoreError, StudyBusyError
from ablate.store import Store
from ablate.store.leases import Lease
from ablate.store.records import Environment, TrialOutcome, TrialRecord, TrialState
from ablate.training.events import Diverged, Point, Tick

_POLL_SECONDS = 0.1
_RENEW_SECONDS = 10.0
_ATTEMPTS = 2
"""How often a trial is begun whose worker dies."""


@dataclass(frozen=True, slots=True)
class StudyResult:
    """How a run of a study ended; `trials` is the sum of the five counts after it when the run was not interrupted.

    Attributes:
        study: Its name.
        trials: Trials that its design asked for.
        trained: Finished in this run.
        reused: Were finished in the store already.
        failed: Raised, or lost their worker, in this run.
        diverged: Have a loss that is not finite, in this run or before.
        seconds: Wall time of this run.
        interrupted: Whether it was asked to stop and did before the end.
    """

    study: str
    trials: int
    trained: int
    reused: int
    failed: int
    diverged: int
    seconds: float
    interrupted: bool


def run_study(
    planner: Planner, store: Store, engine: Engine, environment: Environment, observer: Observer
) -> StudyResult:
    """Run a space until its design asks for no more trials, or until interrupted (SIGINT or SIGTERM).

    Raises:
        StudyBusyError: Another process runs the same study.
        AblateError: The space, its data or the store cannot be used.
    """
    begin = time.monotonic()
    study = planner.space.name
    with store.lease(study):
        pass  # who cannot have the lease hears it now, not after the data is prepared, which can outlast a lease
    plan = make_plan(planner)
    engine.admit(plan)
    trivial = planner.trivial(plan.variants[0])
    with store.lease(study) as lease, stop_on_signal() as stop:
        driver = _Driver(planner, Ledger(store, study, environment), engine, observer, lease)
        driver.begin(plan, trivial)
        driver.run(stop)
    counts = driver.counts
    return StudyResult(
        study=study,
        trials=len(driver.trials),
        trained=counts["trained"],
        reused=counts["reused"],
        failed=counts["failed"],
        diverged=counts["diverged"],
        seconds=time.monotonic() - begin,
        interrupted=driver.busy,
    )


class _Driver:
    """The state of one run of a study.

    A trial is in one of three places: it waits, it is attempted, or it is over and its value known. Several points of
    a design can be the same variant, so that several proposals can ask for the same trial.
    """

    def __init__(self, planner: Planner, ledger: Ledger, engine: Engine, observer: Observer, lease: Lease) -> None:
        self.planner = planner
        self.ledger = ledger
        self.engine = engine
        self.observer = observer
        self.lease = lease
        self.design = planner.design()
        self.trials: dict[str, Trial] = {}
        self.waiting: deque[tuple[Trial, int]] = deque()
        self.attempts: dict[int, Attempt] = {}
        self.values: dict[str, float | None] = {}
        self.askers: dict[str, list[Proposal]] = {}
        self.counts: Counter[str] = Counter()
        self.jobs = 0
        self.renewed = time.monotonic()

    @property
    def busy(self) -> bool:
        """Whether there is anything left to train."""
        return bool(self.waiting or self.attempts)

    def begin(self, plan: Plan, trivial: Mapping[str, Mapping[str, float]]) -> None:
        """Write the study and its plan, and see what is done already."""
        elsewhere = self.ledger.begin(plan, trivial)
        self.trials = {trial.key: trial for trial in plan.trials}
        settled = self.ledger.settled(plan.trials)
        self.observer.planned(plan, settled.keys(), elsewhere, self.engine.size)
        for record in settled.values():
            self.reuse(record)
        self.propose()

    def run(self, stop: StopRequest) -> None:
        """Until nothing is left to train, or until asked to stop; then no trial is left as running."""
        try:
            while self.busy and not stop.asked:
                while self.waiting and self.engine.room() > 0:
                    self.start(*self.waiting.popleft())
                self.listen(_POLL_SECONDS)
                self.observer.beat()
                self.renew()
            self.listen(0.0)  # a trial that ended while we were asked to stop is finished work
        except StudyBusyError:
            self.attempts.clear()  # another driver has taken the study over, and runs its trials now
            raise
        finally:
            with suppress(StoreError):  # if the store cannot even forget, what went wrong before says so
                self.ledger.forget(attempt.trial for attempt in self.attempts.values())

    def propose(self) -> None:
        """Take what the design asks for; answer at once what is known already."""
        while proposals := self.design.ask():
            wanted = [(proposal, self.planner.trial(proposal)) for proposal in proposals]
            self.extend(trial for _, trial in wanted if trial is not None and trial.key not in self.trials)
            for proposal, trial in wanted:
                if trial is None:
                    self.design.tell(proposal.point, proposal.seed, None)
                elif trial.key in self.values:
                    self.design.tell(proposal.point, proposal.seed, self.values[trial.key])
                elif trial.key in self.askers:
                    self.askers[trial.key].append(proposal)
                else:
                    self.askers[trial.key] = [proposal]
                    self.waiting.append((trial, 1))

    def extend(self, trials: Iterable[Trial]) -> None:
        """Add trials to the plan that were not known when the study began."""
        new = {trial.key: trial for trial in trials}
        self.trials |= new
        self.ledger.extend(new.values())
        settled = self.ledger.settled(new.values())
        if new:
            self.observer.extended(new.values(), settled.keys())
        for record in settled.values():
            self.reuse(record)

    def start(self, trial: Trial, attempt: int) -> None:
        """Hand a trial to the engine, unless another study of the store has trained it meanwhile."""
        if not self.ledger.start(trial):
            self.reuse(self.ledger.settled([trial])[trial.key])
            self.observer.reused(trial)
            self.propose()
            return
        self.jobs += 1
        self.attempts[self.jobs] = Attempt(trial, attempt, datetime.now(UTC))
        self.observer.started(trial)
        variant = trial.variant
        weights = weights_files(variant.spec, self.ledger.where, trial.key)
        self.engine.submit(Job(self.jobs, variant.spec.model_dump_json(), (trial.seed,), variant.fingerprint, weights))

    def listen(self, timeout: float) -> None:
        """Take in what the engine says."""
        for message in self.engine.poll(timeout):
            if message.number in self.attempts:
                self.handle(message, self.attempts[message.number])

    def handle(self, message: Message, attempt: Attempt) -> None:
        """Take in one message about an attempt."""
        match message:
            case Happened(event=Tick() as tick):
                self.observer.moved(attempt.trial, tick.step, tick.train_loss[0])
            case Happened(event=Point() as point):
                self.check_metric(point)
                self.ledger.add_point(attempt.trial, attempt.add(point))
                self.observer.measured(attempt.trial, point, 0)
            case Happened(event=Diverged() as diverged):
                attempt.diverged = diverged
            case Done(number):
                self.end(number, attempt.outcome())
            case Broken(number, reason, trace="") if attempt.number < _ATTEMPTS:
                # It lost its worker, and may have better luck; what a trial itself raises, it would raise again.
                del self.attempts[number]
                self.waiting.appendleft((attempt.trial, attempt.number + 1))
                self.observer.lost(attempt.trial, reason)
            case Broken(number, reason, trace, log):
                self.end(number, attempt.outcome(failure=f"{reason}\n{trace}{log}".strip()))

    def check_metric(self, point: Point) -> None:
        """Hear at the first point, not after the last trial, that the objective is none of the task's metrics."""
        metric = self.planner.space.objective.metric
        if metric not in point.metrics:
            raise SpaceError(
                "the task does not measure this",
                where=f"space {self.planner.space.name}, `objective.metric`",
                expected=f"one of {', '.join(point.metrics)}",
                got=repr(metric),
            )

    def end(self, number: int, outcome: TrialOutcome) -> None:
        """Store how a trial ended, tell it on, and take what the design asks for next."""
        self.ledger.end(outcome)
        trial = self.attempts.pop(number).trial
        self.counts["trained" if outcome.state is TrialState.FINISHED else outcome.state.value] += 1
        self.observer.ended(trial, outcome)
        self.settle(outcome.key, outcome.metrics)
        self.propose()

    def reuse(self, record: TrialRecord) -> None:
        """Take a trial as the store has it."""
        self.counts["reused" if record.state is TrialState.FINISHED else record.state.value] += 1
        self.settle(record.key, record.metrics)

    def settle(self, key: str, metrics: dict[str, float]) -> None:
        """A trial is over: keep its value, and tell every proposal that asked for it."""
        self.values[key] = metrics.get(self.planner.space.objective.metric)
        for proposal in self.askers.pop(key, ()):
            self.design.tell(proposal.point, proposal.seed, self.values[key])

    def renew(self) -> None:
        """Give a sign of life now and then, so that the study stays ours."""
        if time.monotonic() - self.renewed > _RENEW_SECONDS:
            self.lease.renew()
            self.renewed = time.monotonic()

"""The driver: carries trials from a design to an engine and their results to the store and back to the design.

Only this process writes to the store. A study is resumed by running it again: what the store holds is told to a fresh
design, and only what is missing is trained.
"""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import FrameType

from ablate.designs.base import Design, Proposal
from ablate.engine.base import Engine
from ablate.engine.observer import Observer
from ablate.engine.plan import Plan, PlannedTrial, PlannedVariant, Planner, make_plan
from ablate.engine.weights import weights_files
from ablate.engine.worker import Broken, Done, Happened, Job, Message
from ablate.store import Store
from ablate.store import records as stored
from ablate.store.leases import Lease
from ablate.training.events import Diverged, Point, Tick

_POLL_SECONDS = 0.1
_RENEW_SECONDS = 10.0
_TRIES = 2


@dataclass(frozen=True, slots=True)
class StudyResult:
    """How a run of a study ended.

    Attributes:
        study: Its name.
        trials: Trials that its design asked for.
        trained: Finished in this run.
        reused: Were in the store already.
        failed: Raised, or lost their worker, in this run.
        diverged: Have a loss that is not finite, in this run or before.
        seconds: Wall time of this run.
        interrupted: Whether it was asked to stop before the end.
    """

    study: str
    trials: int
    trained: int
    reused: int
    failed: int
    diverged: int
    seconds: float
    interrupted: bool


@dataclass(slots=True)
class _Running:
    trial: PlannedTrial
    proposal: Proposal
    started_at: datetime
    tries: int
    curve: list[stored.CurvePoint] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    diverged: Diverged | None = None


def run_study(planner: Planner, store: Store, engine: Engine, environment: stored.Environment, observer: Observer) -> StudyResult:
    """Run a space until its design asks for no more trials, or until interrupted (SIGINT or SIGTERM).

    Raises:
        StudyBusyError: Another process runs the same study.
        AblateError: The space, its data or the store cannot be used.
    """
    begin = time.monotonic()
    with store.lease(planner.space.name) as lease:
        plan = make_plan(planner)
        driver = _Driver(planner, plan, store, engine, environment, observer, lease)
        driver.begin()
        with _stop_on_signal() as stop:
            driver.run(stop)
        return driver.result(time.monotonic() - begin, interrupted=stop.asked)


def draft_of(plan: Plan) -> stored.StudyDraft:
    """The study row of a plan."""
    space = plan.space
    return stored.StudyDraft(
        name=space.name,
        question=space.question,
        source=space.source,
        space=space.model_dump(mode="json"),
        text=space.text,
        objective=space.objective.model_dump(mode="json"),
        baseline=plan.variants[0].name,
    )


class _Driver:
    """The state of one run of a study."""

    def __init__(self, planner: Planner, plan: Plan, store: Store, engine: Engine, environment: stored.Environment,
                 observer: Observer, lease: Lease) -> None:
        self.planner = planner
        self.plan = plan
        self.store = store
        self.engine = engine
        self.environment = environment
        self.observer = observer
        self.lease = lease
        self.design: Design = planner.design()
        self.metric = planner.space.objective.metric
        self.waiting: deque[tuple[PlannedTrial, Proposal]] = deque()
        self.running: dict[int, _Running] = {}
        self.planned: dict[str, PlannedTrial] = {trial.key: trial for trial in plan.trials}
        self.jobs = 0
        self.trained = self.reused = self.failed = self.diverged = 0
        self.renewed = time.monotonic()

    def begin(self) -> None:
        """Write the study and its plan, clear what a dead driver left, and see what is done already."""
        name = self.planner.space.name
        earlier = {study.name for study in self.store.studies()}
        known = {trial.key for trial in self.store.study(name).planned} if name in earlier else set()
        self.store.begin_study(
            draft_of(self.plan),
            [variant_record(variant) for variant in self.plan.variants],
            [stored.PlannedTrial(trial.key, trial.variant.name, trial.seed) for trial in self.plan.trials],
        )
        self.store.forget_unfinished(list(self.planned))
        done = self.store.trials(list(self.planned))
        self.observer.planned(self.plan, len(done), len(done.keys() - known), self.engine.size)
        self.propose()

    def run(self, stop: _Stop) -> None:
        """Until nothing is left to train, or until asked to stop."""
        while (self.waiting or self.running) and not stop.asked:
            while self.waiting and self.engine.room() > 0:
                trial, proposal = self.waiting.popleft()
                self.start(trial, proposal, tries=1)
            for message in self.engine.poll(_POLL_SECONDS):
                self.handle(message)
            self.observer.beat()
            if time.monotonic() - self.renewed > _RENEW_SECONDS:
                self.lease.renew()
                self.renewed = time.monotonic()
        # Trials that ended while we were asked to stop are finished work.
        for message in self.engine.poll(0.0):
            self.handle(message)
        if stop.asked:
            self.store.forget_unfinished([run.trial.key for run in self.running.values()])

    def propose(self) -> None:
        """Take what the design asks for; tell it at once what the store knows."""
        while proposals := self.design.ask():
            told = False
            fresh: list[tuple[PlannedTrial, Proposal]] = []
            for proposal in proposals:
                trial = self.planner.trial(proposal)
                if trial is None:
                    self.design.tell(proposal.point, proposal.seed, None)
                    told = True
                else:
                    fresh.append((trial, proposal))
            self._extend_plan([trial for trial, _ in fresh])
            done = self.store.trials([trial.key for trial, _ in fresh])
            queued = {trial.key for trial, _ in self.waiting} | {run.trial.key for run in self.running.values()}
            for trial, proposal in fresh:
                if trial.key in done:
                    self._count_stored(done[trial.key])
                    self.design.tell(proposal.point, proposal.seed, done[trial.key].metrics.get(self.metric))
                    told = True
                elif trial.key not in queued:
                    queued.add(trial.key)
                    self.waiting.append((trial, proposal))
            if not told:
                return

    def start(self, trial: PlannedTrial, proposal: Proposal, tries: int) -> None:
        """Hand a trial to the engine."""
        self.jobs += 1
        self.running[self.jobs] = _Running(trial, proposal, datetime.now(UTC), tries)
        variant = trial.variant
        self.store.record_started(trial.key, variant.hash, trial.seed, variant.fingerprint, self.environment)
        weights = weights_files(variant.spec, self.store.where, trial.key)
        self.engine.submit(Job(self.jobs, variant.spec.model_dump_json(), (trial.seed,), variant.fingerprint, weights))
        self.observer.started(trial)

    def handle(self, message: Message) -> None:
        """Take in what an engine says of a job."""
        run = self.running.get(message.number)
        if run is None:
            return
        match message:
            case Happened(event=Tick() as tick):
                self.observer.moved(run.trial, tick.step, tick.train_loss[0])
            case Happened(event=Point() as point):
                self._take_point(run, point)
            case Happened(event=Diverged() as diverged):
                run.diverged = diverged
            case Done():
                del self.running[message.number]
                self._end(run, stored.TrialState.DIVERGED if run.diverged else stored.TrialState.FINISHED)
            case Broken():
                del self.running[message.number]
                if run.tries < _TRIES and not message.trace:  # it lost its worker; an exception would come again
                    self.start(run.trial, run.proposal, run.tries + 1)
                else:
                    reason = f"{message.reason}\n{message.trace}{message.log}".strip()
                    self._end(run, stored.TrialState.FAILED, reason)

    def result(self, seconds: float, *, interrupted: bool) -> StudyResult:
        """The counts of this run."""
        return StudyResult(
            study=self.planner.space.name,
            trials=len(self.planned),
            trained=self.trained,
            reused=self.reused,
            failed=self.failed,
            diverged=self.diverged,
            seconds=seconds,
            interrupted=interrupted,
        )

    def _extend_plan(self, trials: list[PlannedTrial]) -> None:
        new = [trial for trial in trials if trial.key not in self.planned]
        if new:
            name = self.planner.space.name
            self.store.add_variants(name, [variant_record(trial.variant) for trial in new])
            self.store.plan_trials(name, [stored.PlannedTrial(t.key, t.variant.name, t.seed) for t in new])
            self.planned.update((trial.key, trial) for trial in new)

    def _count_stored(self, record: stored.TrialRecord) -> None:
        if record.state is stored.TrialState.DIVERGED:
            self.diverged += 1
        else:
            self.reused += 1

    def _take_point(self, run: _Running, point: Point) -> None:
        # A training loss before the first step, or after divergence, is no number and is stored as none.
        train, val = point.train_loss[0], point.metrics["val_loss"][0]
        taken = stored.CurvePoint(
            step=point.step,
            seconds=point.seconds,
            tokens=point.tokens,
            flops=point.flops,
            train_loss=train if abs(train) < float("inf") else None,
            val_loss=val if abs(val) < float("inf") else None,
        )
        run.curve.append(taken)
        run.metrics = {name: values[0] for name, values in point.metrics.items()}
        self.store.record_points(run.trial.key, [taken])
        self.observer.measured(run.trial, point, 0)

    def _end(self, run: _Running, state: stored.TrialState, reason: str = "") -> None:
        last = run.curve[-1] if run.curve else stored.CurvePoint(0, 0.0, 0, 0.0, None, None)
        if run.diverged is not None and state is stored.TrialState.DIVERGED:
            reason = f"the loss was {run.diverged.loss} at step {run.diverged.step}"
        outcome = stored.TrialOutcome(
            key=run.trial.key,
            variant_hash=run.trial.variant.hash,
            seed=run.trial.seed,
            state=state,
            metrics=run.metrics if state is stored.TrialState.FINISHED else {},
            steps=last.step,
            seconds=last.seconds,
            tokens=last.tokens,
            flops=last.flops,
            stopped_at=run.diverged.step if run.diverged else None,
            reason=reason,
            data_fingerprint=run.trial.variant.fingerprint,
            started_at=run.started_at,
            finished_at=datetime.now(UTC),
            curve=tuple(run.curve),
        )
        self.store.record_outcome(outcome, self.environment)
        self.trained += state is stored.TrialState.FINISHED
        self.diverged += state is stored.TrialState.DIVERGED
        self.failed += state is stored.TrialState.FAILED
        self.design.tell(run.proposal.point, run.proposal.seed, outcome.metrics.get(self.metric))
        self.observer.ended(run.trial, outcome)
        self.propose()


def variant_record(variant: PlannedVariant) -> stored.VariantRecord:
    """The row of a planned variant."""
    return stored.VariantRecord(
        name=variant.name,
        hash=variant.hash,
        settings=dict(variant.settings),
        spec=variant.spec.model_dump(mode="json"),
        parameters=variant.cost.parameters,
    )


@dataclass(slots=True)
class _Stop:
    asked: bool = False


@contextmanager
def _stop_on_signal() -> Iterator[_Stop]:
    """The first SIGINT or SIGTERM asks to stop; a second SIGINT interrupts at once."""
    stop = _Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = True

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread (a notebook's helper thread): signals are somebody else's
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

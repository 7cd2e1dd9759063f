"""The driver: carries trials from a design to an engine and their results to the store and back to the design.

Only this process writes to the store. A study is resumed by running it again: what the store holds is told to a fresh
design, and only what is missing is trained.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from ablate.engine.attempt import Attempt
from ablate.engine.base import Engine
from ablate.engine.dialogue import Dialogue
from ablate.engine.interrupt import StopRequest, stop_on_signal
from ablate.engine.ledger import Ledger
from ablate.engine.observer import Observer
from ablate.engine.packing import Pack, Packing, Queue, Waiting
from ablate.engine.plan import Plan, Planner, Trial, make_plan
from ablate.engine.weights import weights_file
from ablate.engine.worker import Again, Began, Broken, Done, Happened, Job, JobMember, Message, Took
from ablate.errors import SpaceError, StoreError, StudyBusyError
from ablate.spec.seeds import TIMING_SEEDS
from ablate.store import Store
from ablate.store.leases import Lease
from ablate.store.records import Environment, TrialOutcome, TrialRecord, TrialState
from ablate.training.events import Diverged, Event, Point, Remark, Tick

_POLL_SECONDS = 0.1
_RENEW_SECONDS = 10.0
_LOOK_SECONDS = 2.0
"""How often trials that another study's driver runs are looked at."""
_ATTEMPTS = 2
"""How often a trial is begun whose worker dies."""


@dataclass(frozen=True, slots=True)
class StudyResult:
    """How a run of a study ended; `trials` is the sum of the six counts after it when the run was not interrupted.

    Attributes:
        study: Its name.
        trials: Trials that its design asked for.
        trained: Finished in this run.
        reused: Were finished in the store already.
        failed: Raised, or lost their worker, in this run.
        diverged: Have a loss that is not finite, in this run or before.
        pruned: Were ended early by the design, in this run or before.
        seconds: Wall time of this run.
        interrupted: Whether it was asked to stop and did before the end.
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
) -> StudyResult:
    """Run a space until its design asks for no more trials, or until interrupted (SIGINT or SIGTERM).

    Args:
        planner: Of the space.
        store: Where its trials are kept.
        engine: Trains them.
        environment: Of the engine.
        observer: Is told what happens.
        packing: How many trials are trained together as one program.

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
        driver = _Driver(planner, Ledger(store, lease, environment), engine, observer, lease, packing)
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
        pruned=counts["pruned"],
        seconds=time.monotonic() - begin,
        interrupted=driver.busy,
    )


class _Driver:
    """The state of one run of a study.

    A trial is in one of four places: it waits, it is attempted, another study's driver runs it, or it is over and the
    design has been told.
    """

    def __init__(
        self, planner: Planner, ledger: Ledger, engine: Engine, observer: Observer, lease: Lease, packing: Packing
    ) -> None:
        self.planner = planner
        self.ledger = ledger
        self.engine = engine
        self.observer = observer
        self.lease = lease
        self.design = planner.design()
        self.dialogue = Dialogue(self.design, planner.space.objective.metric, ledger.curves)
        self.trials: dict[str, Trial] = {}
        self.waiting = Queue(packing, lambda: engine.size)
        self.attempts: dict[int, list[Attempt]] = {}
        self.elsewhere: list[Waiting] = []
        self.counts: Counter[str] = Counter()
        self.jobs = 0
        self.renewed = time.monotonic()
        self.looked = time.monotonic()

    @property
    def busy(self) -> bool:
        """Whether there is anything left to train."""
        return bool(self.waiting or self.attempts or self.elsewhere)

    def begin(self, plan: Plan, trivial: Mapping[str, Mapping[str, float]]) -> None:
        """Write the study and its plan, and see what is done already."""
        elsewhere = self.ledger.begin(plan, trivial)
        if self.ledger.replaced:
            self.observer.say(
                f"a study {self.planner.space.name!r} planned {self.ledger.replaced} other trials until now; this one"
                " replaces it. They stay in the store: with another `name` here both studies could be shown"
            )
        self.trials = {trial.key: trial for trial in plan.trials}
        self.renew()
        settled = self.ledger.settled(plan.trials, pruned=self.design.prunes)
        self.renew()
        self.observer.planned(plan, settled.keys(), elsewhere, self.engine.size)
        for record in settled.values():
            self.reuse(record)
        self.propose()
        self.waiting.go_on(self.engine.left(), self.trials)

    def run(self, stop: StopRequest) -> None:
        """Until nothing is left to train, or until asked to stop; then no trial is left as running."""
        try:
            while self.busy and not stop.asked:
                while self.waiting and self.engine.room() > 0:
                    self.start(self.waiting.take(sum(map(len, self.attempts.values())), self.engine.next_place()))
                self.listen(_POLL_SECONDS)
                self.observer.beat()
                self.renew()
                self.look_elsewhere()
            self.listen(0.0)  # a trial that ended while we were asked to stop is finished work
        except StudyBusyError:
            self.attempts.clear()  # another driver has taken the study over, and runs its trials now
            raise
        finally:
            with suppress(StoreError):  # if the store cannot even forget, what went wrong before says so
                self.ledger.forget(attempt.trial for attempts in self.attempts.values() for attempt in attempts)

    def propose(self) -> None:
        """Take what the design asks for; answer at once what is known already."""
        while proposals := self.design.ask():
            wanted = [(proposal, self.planner.trial(proposal)) for proposal in proposals]
            self.extend(trial for _, trial in wanted if trial is not None and trial.key not in self.trials)
            for proposal, trial in wanted:
                if trial is None:
                    self.design.tell(proposal.point, proposal.seed, None)
                elif self.dialogue.ask(proposal, trial.key):
                    self.waiting.add(trial)

    def extend(self, trials: Iterable[Trial]) -> None:
        """Add trials to the plan that were not known when the study began."""
        new = {trial.key: trial for trial in trials}
        self.trials |= new
        self.engine.expect(new.values())
        self.ledger.extend(new.values())
        settled = self.ledger.settled(new.values(), pruned=self.design.prunes)
        if new:
            self.observer.extended(new.values(), settled.keys())
        for record in settled.values():
            self.reuse(record)

    def start(self, pack: Pack) -> None:
        """Hand trials to the engine as one job, but for those that another study of the store has, or had, trained."""
        begun = {waiting.trial.key: waiting for waiting in pack.waiting if self.begin_trial(waiting)}
        if not begun:
            return
        self.jobs += 1
        now = datetime.now(UTC)
        trials = pack.whole or tuple(waiting.trial for waiting in begun.values())
        attempts, members, unwanted = [], [], []
        for i, trial in enumerate(trials):
            spec, weights = trial.variant.spec, ""
            if trial.key in begun:
                attempts.append(Attempt(trial, begun[trial.key].attempt, i, len(trials), now))
                weights = weights_file(spec, self.ledger.where, trial.key)
                self.observer.started(trial)
            else:
                unwanted.append(i)
            members.append(JobMember(spec.model_dump_json(), trial.seed, weights, trial.key))
        self.attempts[self.jobs] = attempts
        self.engine.submit(Job(self.jobs, tuple(members), trials[0].variant.fingerprint))
        for i in unwanted:
            self.engine.stop(self.jobs, i)

    def begin_trial(self, waiting: Waiting) -> bool:
        """Write that a trial is running, unless another study has settled it, or its driver runs it."""
        if self.ledger.start(waiting.trial, waiting.attempt):
            return True
        settled = self.ledger.settled([waiting.trial])
        if settled:
            self.reuse(settled[waiting.trial.key])
            self.observer.reused(waiting.trial)
            self.propose()
        else:
            self.elsewhere.append(waiting)
        return False

    def listen(self, timeout: float) -> None:
        """Take in what the engine says."""
        for message in self.engine.poll(timeout):
            if message.number in self.attempts:
                self.handle(message)
        self.ledger.write_points()

    def handle(self, message: Message) -> None:
        """Take in one message about a job of which a member at least is still attempted."""
        attempts = list(self.attempts[message.number])
        match message:
            case Began() | Again():
                for attempt in attempts:
                    self.place(attempt, message)
            case Happened(number, event):
                self.hear(number, attempts, event)
            case Took(_, values):
                for attempt in attempts:
                    attempt.take(values)
            case Done(number):
                for attempt in attempts:
                    if attempt.is_whole:
                        self.end(number, attempt, attempt.outcome())
                if rest := self.attempts.get(number):
                    self.break_(list(rest), Broken(number, "its job ended before it did", "", ""))
            case Broken():
                self.break_(attempts, message)

    def hear(self, number: int, attempts: list[Attempt], event: Event) -> None:
        """Take in what training says of a job."""
        match event:
            case Tick(step, train_loss):
                for attempt in attempts:
                    self.observer.moved(attempt.trial, step, train_loss[attempt.member])
            case Point():
                self.check_metric(event)
                for attempt in attempts:
                    self.ledger.add_point(attempt.trial, attempt.add(event))
                    self.observer.measured(attempt.trial, event, attempt.member)
                    if self.dialogue.unwanted(attempt):
                        attempt.pruned_at = event.step
                        self.engine.stop(number, attempt.member)
                        self.end(number, attempt, attempt.outcome())
            case Diverged(member):
                for attempt in attempts:
                    if attempt.member == member:
                        attempt.diverged = event
                        self.end(number, attempt, attempt.outcome())
            case Remark(text):
                self.observer.say(text)

    def place(self, attempt: Attempt, message: Began | Again) -> None:
        """A trial has reached a worker, or lost it, and its engine brings it to another."""
        if isinstance(message, Again):
            attempt.begin_again()
            self.observer.lost(attempt.trial, message.reason)
            self.observer.started(attempt.trial)
        else:
            attempt.worker = message.worker
        self.ledger.place(attempt.trial, attempt.worker, attempt.number)

    def break_(self, attempts: list[Attempt], broken: Broken) -> None:
        """A job broke.

        A pack may have been too large for the memory, or one of its members is at fault: it is split. Who lost its
        worker alone may have better luck; what a trial itself raises, it would raise again.
        """
        together = attempts[0].together
        alone = together == 1
        if alone and (broken.trace or attempts[0].number >= _ATTEMPTS):
            failure = f"{broken.reason}\n{broken.trace}{broken.log}".strip()
            self.end(broken.number, attempts[0], attempts[0].outcome(failure=failure))
            return
        for attempt in attempts:
            self.leave(broken.number, attempt)
            self.observer.lost(attempt.trial, broken.reason)
        self.waiting.put_back(
            [Waiting(attempt.trial, attempt.number + 1 if alone else 1) for attempt in attempts], together
        )

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

    def leave(self, number: int, attempt: Attempt) -> None:
        """Heed a member of a job no more."""
        self.attempts[number].remove(attempt)
        if not self.attempts[number]:
            del self.attempts[number]

    def end(self, number: int, attempt: Attempt, outcome: TrialOutcome) -> None:
        """Store how a trial ended, tell it on, and take what the design asks for next."""
        self.ledger.end(outcome, attempt.worker)
        self.leave(number, attempt)
        self.counts["trained" if outcome.state is TrialState.FINISHED else outcome.state.value] += 1
        self.observer.ended(attempt.trial, outcome)
        self.time(attempt.trial)
        self.dialogue.end(outcome, attempt.trial.variant.spec.training.steps, watched=True)
        self.propose()

    def reuse(self, record: TrialRecord) -> None:
        """Take a trial as the store has it."""
        self.counts["reused" if record.state is TrialState.FINISHED else record.state.value] += 1
        trial = self.trials[record.key]
        self.time(trial)
        self.dialogue.end(record, trial.variant.spec.training.steps, watched=False)

    def time(self, trial: Trial) -> None:
        """Let the planner know what a step of a trial took that was trained to measure just that."""
        if trial.seed in TIMING_SEEDS and (seconds := self.ledger.seconds_of_step(trial)) is not None:
            self.planner.budget.time(trial.variant.hash, trial.seed, seconds)

    def look_elsewhere(self) -> None:
        """Try trials again, now and then, that another study's driver ran: it may have ended them, or itself."""
        if self.elsewhere and time.monotonic() - self.looked > _LOOK_SECONDS:
            self.waiting.extend(self.elsewhere)
            self.elsewhere.clear()
            self.looked = time.monotonic()

    def renew(self) -> None:
        """Give a sign of life now and then, so that the study stays ours."""
        if time.monotonic() - self.renewed > _RENEW_SECONDS:
            self.lease.renew()
            self.renewed = time.monotonic()

"""`StudyRun`: the state of one run of a study, and the handling of the messages of its engine."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from ablate.designs.base import BASELINE
from ablate.errors import SpaceError, StoreError, StudyBusyError
from ablate.execution.attempt import Attempt, Dialogue
from ablate.execution.checkpoint import trainer_folders
from ablate.execution.engine import Engine, Observer
from ablate.execution.ledger import Ledger
from ablate.execution.protocol import (
    Began,
    Broken,
    Done,
    Happened,
    Job,
    JobMember,
    JobRestarted,
    Message,
    StateReplaced,
)
from ablate.metrics import why_absent
from ablate.planning.packing import NextPack, Packing, Queue, WaitingTrial
from ablate.planning.plan import Plan, Trial, stages_of
from ablate.planning.planner import Planner
from ablate.processes import StopRequest
from ablate.roles import TrialRole
from ablate.store.leases import Lease
from ablate.store.records import TrialOutcome, TrialRecord, TrialState
from ablate.trained.weights import weights_file
from ablate.training.events import Diverged, Event, Measurement, Started, Tick, TrialWarning

_POLL_SECONDS = 0.1
_RENEW_SECONDS = 10.0
_LONG_SECONDS, _LONG_FLOP = 300.0, 1e12
"""Seconds of a trial that are said before it begins; arithmetic below which none takes as long on any machine."""
_LOOK_SECONDS = 2.0
"""The seconds between two looks at trials that the driver of another study runs."""
_WITHOUT_WEIGHTS = {TrialState.DIVERGED: "diverged", TrialState.PRUNED: "was ended early", TrialState.FAILED: "failed"}
_ATTEMPTS = 2
"""How often a trial is started whose worker dies."""


class StudyRun:
    """The state of one run of a study.

    A trial is in one of four states: waiting; attempted; run by the driver of another study; or ended, and reported
    to the design.
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
        self.metric = planner.space.objective.metric
        self.dialogue = Dialogue(self.design, self.metric, ledger.curves)
        self.trials: dict[str, Trial] = {}
        self.tasks: set[str] = set()
        self.declared: frozenset[str] = frozenset()
        self.waiting = Queue(packing, lambda: engine.size)
        self.attempts: dict[int, list[Attempt]] = {}
        self.members: dict[int, tuple[Trial, ...]] = {}  # of each job, those that left it included
        self.diverged: set[str] = set()
        self.held: dict[str, list[Trial]] = {}  # by the key of the trial whose weights they start from
        self.sources: set[str] = set()
        self.queued: set[str] = set()
        self.saved: dict[str, int] = {}  # by key of a trial that lost its worker: the step of its checkpoint
        self.run_by_another_driver: list[WaitingTrial] = []
        self.counts: Counter[str] = Counter()
        self.jobs = 0
        self.renewed = time.monotonic()
        self.looked = time.monotonic()

    @property
    def busy(self) -> bool:
        """Whether there are trials left to train."""
        return bool(self.waiting or self.attempts or self.run_by_another_driver or self.held)

    def begin(self, plan: Plan, trivial: Mapping[str, Mapping[str, float]]) -> None:
        """Write the study and its plan, and reuse the trials that the store already holds."""
        from_other_studies = self.ledger.begin(plan, trivial)
        if self.ledger.replaced:
            self.observer.say(
                f"a study {self.planner.space.name!r} planned {self.ledger.replaced} other trials until now; this one"
                " replaces it. They stay in the store: with another `name` here both studies could be shown"
            )
        self.trials = {trial.key: trial for trial in plan.trials}
        self.tasks = {variant.spec.task.content_hash() for variant in plan.variants}
        self.declared = plan.declared
        self.sources = {before.key for trial in plan.trials for before in stages_of(trial)}
        self.renew()
        settled = self.ledger.settled(plan.trials, pruned=self.design.prunes)
        self.renew()
        self.tell_changed(plan.trials)
        self.observer.planned(plan, settled.keys(), from_other_studies, self.engine.size)
        self.tell_long(trial for trial in plan.trials if trial.key not in settled)
        for record in settled.values():
            self.reuse(record)
        self.propose()
        self.waiting.resume(self.engine.resumable_packs(), self.trials)

    def run(self, stop: StopRequest) -> None:
        """Train until no trial is left or a stop is requested. Afterwards no trial is marked as running."""
        try:
            while self.busy and not stop.asked:
                while self.waiting and self.engine.room() > 0:
                    running = sum(attempt.left for attempts in self.attempts.values() for attempt in attempts)
                    self.submit_pack(self.waiting.take(running, self.engine.next_device()))
                self.listen(_POLL_SECONDS)
                self.observer.beat()
                self.renew()
                self.queue_again()
            self.listen(0.0)  # keep a trial that ended while the stop was requested
        except StudyBusyError:
            self.attempts.clear()  # another driver has taken over the study and runs its trials
            raise
        finally:
            with suppress(StoreError):  # the original error explains why the store fails
                self.ledger.forget(attempt.trial for attempts in self.attempts.values() for attempt in attempts)

    def propose(self) -> None:
        """Queue the trials that the design proposes; tell it at once the results that are known."""
        while proposals := self.design.ask():
            wanted = [(proposal, self.planner.trial(proposal)) for proposal in proposals]
            asked = [trial for _, trial in wanted if trial is not None]
            self.ledger.chosen |= {trial.variant.name for trial in asked if self.is_chosen(trial)}
            before = [stage for trial in asked for stage in stages_of(trial)]
            self.sources |= {stage.key for stage in before}
            # A trial that is compared and gives its weights to another is planned as compared: the later entry counts.
            wanted_by_key = {trial.key: trial for trial in (*before, *asked)}
            self.extend(trial for trial in wanted_by_key.values() if trial.key not in self.trials)
            self.promote(trial for trial in asked if self.trials[trial.key].role is TrialRole.STAGE)
            for proposal, trial in wanted:
                if trial is None:
                    self.design.tell(proposal.point, proposal.seed, None)
                elif self.dialogue.ask(proposal, trial.key):
                    self.queue(self.trials[trial.key])

    def is_chosen(self, trial: Trial) -> bool:
        """Whether results led the design to this trial, so that its variant must be confirmed on other seeds."""
        known = self.trials.get(trial.key)
        if trial.role is not TrialRole.COMPARISON or (known is not None and known.role is TrialRole.COMPARISON):
            return False
        design = self.planner.space.design
        by_results = self.dialogue.has_compared and (design.chooses or not design.declares(trial.seed))
        return trial.variant.name != BASELINE and (by_results or trial.variant.name not in self.declared)

    def queue(self, trial: Trial) -> None:
        """Queue a trial once; one that starts from the weights of another is held back until that one has ended."""
        if trial.key in self.queued:
            return
        self.queued.add(trial.key)
        stage = trial.stage
        if stage is None or Path(weights_file(stage.key, self.ledger.where)).exists():
            self.waiting.add(trial)
            return
        self.held.setdefault(stage.key, []).append(trial)
        ended = self.ledger.settled([stage]).get(stage.key)
        if ended is None:
            self.queue(self.trials[stage.key])
        elif ended.state is not TrialState.FINISHED:
            self.release(stage.key, ended.state)
        else:
            raise StoreError(
                "a trial that others start from has ended, and its weights were not kept",
                where=f"trial {stage.key[:12]}",
                expected=weights_file(stage.key, self.ledger.where),
                remedy="Restore the file, or run the study into a new store in another folder.",
            )

    def release(self, key: str, state: TrialState) -> None:
        """Queue the trials that start from the weights of one that has ended; without weights they fail."""
        for trial in self.held.pop(key, ()):
            if state is TrialState.FINISHED:
                self.waiting.add(trial)
                continue
            failed = Attempt(trial, 1, 0, 1, datetime.now(UTC))
            failure = f"it starts from the weights of trial {key[:12]}, which {_WITHOUT_WEIGHTS[state]}"
            if self.ledger.mark_running(trial, 1):
                outcome = failed.outcome(failure=failure)
                self.ledger.end(outcome, None)
                self.notify(failed, outcome)

    def extend(self, trials: Iterable[Trial]) -> None:
        """Add trials to the plan that were unknown when the study began."""
        new = {trial.key: trial for trial in trials}
        self.trials |= new
        self.engine.expect(new.values())
        self.ledger.extend(new.values())
        tasks = {trial.variant.spec.task.content_hash() for trial in new.values()}
        if not tasks <= self.tasks:  # results on a new task are judged by its own trivial baselines
            self.tasks |= tasks
            self.ledger.set_trivial(self.planner.trivial([*self.planner.variants.values()]))
        settled = self.ledger.settled(new.values(), pruned=self.design.prunes)
        self.tell_changed(new.values())
        if new:
            self.observer.extended(new.values(), settled.keys())
        for record in settled.values():
            self.reuse(record)

    def tell_long(self, trials: Iterable[Trial]) -> None:
        """Say how long the longest trial takes if that is more than minutes: nothing else may be printed until then."""
        most = max((trial.variant.flops for trial in trials), default=0)
        speed = self.engine.speed() if most >= _LONG_FLOP else None
        if speed and most / speed >= _LONG_SECONDS:
            minutes = most / speed / 60
            took = f"{minutes / 60:,.1f} hours" if minutes > 90 else f"{minutes:,.0f} minutes"
            self.observer.say(f"a trial takes up to about {took}, by a matmul measured here; `ablate plan` says more")

    def tell_changed(self, trials: Iterable[Trial]) -> None:
        """Say which trials of the store other code has trained."""
        for kind in self.planner.earlier.changed(trials):
            self.observer.say(kind.sentence)

    def promote(self, trials: Iterable[Trial]) -> None:
        """Plan trials in the role that the design asks for, which were planned as stages of others only."""
        promoted = {trial.key: trial for trial in trials if trial.role is not TrialRole.STAGE}
        self.trials |= promoted
        self.ledger.promote(list(promoted.values()))

    def submit_pack(self, pack: NextPack) -> None:
        """Submit trials to the engine as one job, without those that another study trains or has trained."""
        begun = {waiting.trial.key: waiting for waiting in pack.waiting if self.mark_running(waiting)}
        if not begun:
            return
        self.jobs += 1
        now = datetime.now(UTC)
        trials = pack.whole or tuple(waiting.trial for waiting in begun.values())
        attempts, members, unwanted = [], [], []
        stages = {
            stage.hash for stage in self.planner.stages.values() if stage is not None
        }  # later trials may start there
        for i, trial in enumerate(trials):
            spec, weights = trial.variant.spec, ""
            if trial.key in begun:
                waiting = begun[trial.key]
                attempts.append(Attempt(trial, waiting.attempt, i, len(trials), now, parted=waiting.parted))
                keeps = spec.training.save_weights or trial.key in self.sources or trial.variant.hash in stages
                weights = weights_file(trial.key, self.ledger.where) if keeps else ""
                self.observer.started(trial)
            elif trial.key not in self.diverged:  # a diverged member leaves at the same step again
                unwanted.append(i)
            member = JobMember(spec.model_dump_json(), trial.seed, weights, trial.key, spec.training.population)
            members.append(
                replace(
                    member,
                    initial_weights=self.initial_weights(trial),
                    code=trial.variant.code.identity,
                    folders=None if spec.builds_model else trainer_folders(self.ledger.where, trial.key),
                )
            )
        self.attempts[self.jobs], self.members[self.jobs] = attempts, tuple(trials)
        self.engine.submit(Job(self.jobs, tuple(members), trials[0].variant.fingerprint))
        for i in unwanted:
            self.engine.stop(self.jobs, i)

    def initial_weights(self, trial: Trial) -> str:
        """The file or folder of the weights that a trial starts from; empty if it starts from random ones."""
        begin = trial.variant.spec.training.init_from
        if begin is None:
            return ""
        return begin.source if trial.stage is None else weights_file(trial.stage.key, self.ledger.where)

    def mark_running(self, waiting: WaitingTrial) -> bool:
        """Mark a trial as running, unless another study has settled it or is running it."""
        if self.ledger.mark_running(waiting.trial, waiting.attempt):
            return True
        settled = self.ledger.settled([waiting.trial])
        if settled:
            self.reuse(settled[waiting.trial.key])
            self.observer.reused(waiting.trial)
            self.propose()
        else:
            self.run_by_another_driver.append(waiting)
        return False

    def listen(self, timeout: float) -> None:
        """Handle the messages of the engine."""
        for message in self.engine.poll(timeout):
            if message.number in self.attempts:
                self.handle(message)
        self.ledger.write_points()

    def handle(self, message: Message) -> None:
        """Handle one message about a job that has at least one tracked member."""
        attempts = list(self.attempts[message.number])
        match message:
            case Began() | JobRestarted():
                for attempt in attempts:
                    self.record_worker(attempt, message)
            case Happened(number, event):
                self.hear(number, attempts, event)
            case StateReplaced(_, values):
                for attempt in attempts:
                    attempt.restart_with(values)
            case Done(number):
                for attempt in attempts:
                    if attempt.is_whole:
                        attempt.check_finite(self.metric)
                        unmeasured = "" if attempt.diverged is not None else self.unmeasured(attempt)
                        self.end(number, attempt, attempt.outcome(unmeasured))
                if rest := self.attempts.get(number):
                    self.break_(list(rest), Broken(number, "its job ended before it did", "", ""))
            case Broken():
                self.break_(attempts, message)

    def hear(self, number: int, attempts: list[Attempt], event: Event) -> None:
        """Handle a training event of a job."""
        match event:
            case Tick(step, train_loss):
                for attempt in attempts:
                    self.observer.moved(attempt.trial, step, train_loss[attempt.member])
            case Started(member):
                for attempt in attempts:
                    if attempt.member == member:
                        attempt.record_transfer(event)
            case Measurement():
                self.measure(number, attempts, event)
            case Diverged(member):
                for attempt in attempts:
                    if attempt.member == member:
                        attempt.diverged = event
                        self.end(number, attempt, attempt.outcome())
            case TrialWarning(text):
                self.observer.say(text)

    def measure(self, number: int, attempts: list[Attempt], point: Measurement) -> None:
        """Handle a point of the curves of a job."""
        if any(attempt.trial.role is not TrialRole.STAGE for attempt in attempts):
            self.check_metric(point)
        for attempt in attempts:
            before = attempt.curve[-1] if attempt.curve else None
            self.ledger.add_point(attempt.trial, attempt.add(point))
            self.observer.measured(attempt.trial, point, attempt.member)
            watched = before is not None and before.step == point.step and before.val_loss is not None
            if not watched and self.dialogue.unwanted(attempt):
                attempt.pruned_at = point.step
                self.engine.stop(number, attempt.member)
                self.end(number, attempt, attempt.outcome())

    def record_worker(self, attempt: Attempt, message: Began | JobRestarted) -> None:
        """Record that a trial has started on a worker, or has lost it and is restarted by the engine."""
        if isinstance(message, JobRestarted):
            attempt.begin_again()
            self.observer.lost(attempt.trial, message.reason)
            self.observer.started(attempt.trial)
        else:
            attempt.worker = message.worker
        self.ledger.record_worker(attempt.trial, attempt.worker, attempt.number)

    def break_(self, attempts: list[Attempt], broken: Broken) -> None:
        """Handle a job that broke.

        A trial or pack that lost its worker is retried once, and again as long as it advances by a checkpoint; a pack
        resumes as the same pack, because the last digits of a loss depend on the other members. An exception would be
        raised again. A pack that raises, or loses a second worker, may be too large for the memory, or one of its
        members may be at fault, so it is split.
        """
        together = attempts[0].together
        advanced = broken.saved > self.saved.get(attempts[0].trial.key, 0)
        self.saved |= {attempt.trial.key: broken.saved for attempt in attempts}
        alone, once_more = together == 1, not broken.trace and (attempts[0].number < _ATTEMPTS or advanced)
        if alone and not once_more:
            failure = f"{broken.reason}\n{broken.trace}{broken.log}".strip()
            self.end(broken.number, attempts[0], attempts[0].outcome(failure=failure))
            return
        whole = self.members[broken.number]
        for attempt in attempts:
            self.leave(broken.number, attempt)
            if once_more:
                self.observer.lost(attempt.trial, broken.reason)
        if once_more:
            again = [WaitingTrial(attempt.trial, attempt.number + 1, attempt.parted) for attempt in attempts]
            self.waiting.put_back(again, () if alone else whole)
        else:
            self.observer.split([attempt.trial for attempt in attempts], broken.reason)
            # An exception is reported for the trial that raises it alone, not of those that shared a pack with it.
            why = "training it raised an exception" if broken.trace else broken.reason
            parted = f"its pack of {together} trials was split: {why}"
            self.waiting.split([WaitingTrial(attempt.trial, parted=parted) for attempt in attempts], together)

    def check_metric(self, point: Measurement) -> None:
        """Refuse an objective that the task does not measure, at the first point rather than after the last trial."""
        first = not point.step  # later ones may have fewer metrics
        if first and self.metric not in point.metrics and self.metric not in self.planner.space.final_metric_names:
            raise self.no_metric(self.metric, "objective.metric", point.metrics)

    def unmeasured(self, attempt: Attempt) -> str:
        """Why a trial that was trained to its end has failed: it lacks the objective. Empty if it does not.

        Raises:
            SpaceError: No trial before it had the objective either, or pruners have nothing to watch.
        """
        if attempt.trial.role is TrialRole.STAGE:
            return ""
        if self.design.prunes and all(point.val_loss is None for point in attempt.curve):
            raise self.no_metric("val_loss", "design", attempt.metrics)
        if self.metric in attempt.metrics:
            return ""
        if not self.counts["trained"] + self.counts["reused"]:
            raise self.no_metric(self.metric, "objective.metric", attempt.metrics)
        if why := why_absent(self.metric):
            return f"it ended without `{self.metric}`: {why}"
        return f"it ended without a finite `{self.metric}`; it measured {', '.join(attempt.metrics) or 'nothing'}"

    def no_metric(self, name: str, path: str, metrics: Iterable[str]) -> SpaceError:
        """The error for a metric that is not among those of a trial."""
        return SpaceError(
            "the task does not measure this",
            where=f"space {self.planner.space.name}, `{path}`",
            expected=f"one of {', '.join(metrics)}",
            got=repr(name),
        )

    def leave(self, number: int, attempt: Attempt) -> None:
        """Stop tracking this member of a job."""
        self.attempts[number].remove(attempt)
        if not self.attempts[number]:
            del self.attempts[number], self.members[number]

    def end(self, number: int, attempt: Attempt, outcome: TrialOutcome) -> None:
        """Store the outcome of a trial, notify observer and design, and queue the next proposals."""
        self.ledger.end(outcome, attempt.worker)
        if not attempt.trial.variant.spec.builds_model and outcome.state is TrialState.FINISHED:
            trainer_folders(self.ledger.where, outcome.key).remove_checkpoint()
        self.leave(number, attempt)
        self.notify(attempt, outcome)

    def notify(self, attempt: Attempt, outcome: TrialOutcome) -> None:
        """Notify observer and design of the outcome of a trial, and queue the next proposals."""
        if outcome.state is TrialState.DIVERGED:
            self.diverged.add(outcome.key)
        self.counts["trained" if outcome.state is TrialState.FINISHED else outcome.state.value] += 1
        self.observer.ended(attempt.trial, outcome)
        self.time(attempt.trial)
        self.dialogue.end(outcome, attempt.trial.variant.spec.training.steps, watched=True)
        self.release(outcome.key, outcome.state)
        self.propose()

    def reuse(self, record: TrialRecord) -> None:
        """Use the stored result of a trial."""
        self.counts["reused" if record.state is TrialState.FINISHED else record.state.value] += 1
        trial = self.trials[record.key]
        self.time(trial)
        self.dialogue.end(record, trial.variant.spec.training.steps, watched=False)
        self.release(record.key, record.state)

    def time(self, trial: Trial) -> None:
        """Pass the measured time of a step of a timing trial to the planner."""
        if trial.role is TrialRole.TIMING and (seconds := self.ledger.seconds_of_step(trial)) is not None:
            self.planner.budget.time(trial.variant.hash, trial.seed, seconds)

    def queue_again(self) -> None:
        """Queue trials again at intervals that the driver of another study ran: it may have finished them or died."""
        if self.run_by_another_driver and time.monotonic() - self.looked > _LOOK_SECONDS:
            self.waiting.extend(self.run_by_another_driver)
            self.run_by_another_driver.clear()
            self.looked = time.monotonic()

    def renew(self) -> None:
        """Renew the lease of the study at intervals."""
        if time.monotonic() - self.renewed > _RENEW_SECONDS:
            self.lease.renew()
            self.renewed = time.monotonic()

"""The interfaces of the driver: an engine, which runs jobs and reports their events, and observers of a study."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from types import TracebackType
from typing import Self

from ablate.execution.protocol import Job, Message
from ablate.planning.packing import JobDevice, ResumablePack
from ablate.planning.plan import Plan, Trial
from ablate.store.records import TrialOutcome
from ablate.training.events import Measurement


class Engine(ABC):
    """Runs jobs. Leaving its context ends all jobs that still run.

    Attributes:
        device: The device of a trial whose worker reports none: `cpu` or `cuda`.
    """

    device: str = "cpu"

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of jobs that can run at once."""

    @abstractmethod
    def room(self) -> int:
        """The number of jobs that can be submitted now."""

    @abstractmethod
    def admit(self, plan: Plan) -> None:
        """Check before training that the plan can run here.

        Raises:
            EngineError: A trial needs more resources than are available.
        """

    def admit_blocks(self, variant: str, needed: int) -> None:  # noqa: B027 - an engine may have no limit
        """Refuse, before the data is prepared, a variant whose blocks alone do not fit here.

        Args:
            variant: The name of the largest variant.
            needed: Predicted bytes of one of its trials, without embedding and head.

        Raises:
            EngineError: It needs more memory than is available.
        """

    def speed(self) -> float | None:
        """The arithmetic that one job does a second, measured here in less than a second; None if it is not known."""
        return None

    def expect(self, trials: Iterable[Trial]) -> None:  # noqa: B027 - most engines need no announcement
        """Announce trials that the design has added to the plan; they may be larger than all earlier ones."""

    def next_device(self) -> JobDevice | None:
        """The device of the next job; None if all are alike."""
        return None

    def resumable_packs(self) -> list[ResumablePack]:
        """Packs that an earlier driver of the study left. A job with the same members in the same order resumes one."""
        return []

    def complete(self) -> None:  # noqa: B027 - an engine may keep nothing
        """All trials of the study have finished: remove what only a continuation would read."""

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Start a job. Call it only while `room()` is positive."""

    @abstractmethod
    def stop(self, number: int, member: int) -> None:
        """Ask a member to leave its job soon; this has no effect if the job has ended.

        The driver stops tracking this member. A job whose members have all left ends with `Done`.
        """

    @abstractmethod
    def poll(self, timeout: float) -> list[Message]:
        """The messages since the last call; waits up to `timeout` seconds for the first one.

        Raises:
            EngineError: No job can run any more.
        """

    @abstractmethod
    def close(self) -> None:
        """End all jobs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Observer:
    """Receives the events of a running study and ignores them; subclasses override the events that they show."""

    def say(self, line: str) -> None:
        """Print one line of progress before trials run."""

    def planned(self, plan: Plan, settled: Collection[str], from_other_studies: int, workers: int) -> None:
        """The plan is made. Trials with a `settled` key are in the store; other studies trained
        `from_other_studies` of them."""

    def extended(self, trials: Collection[Trial], settled: Collection[str]) -> None:
        """The design has proposed further trials; those with a `settled` key are in the store."""

    def reused(self, trial: Trial) -> None:
        """A trial is not started because another study of the store has settled it."""

    def started(self, trial: Trial) -> None:
        """A trial was started."""

    def moved(self, trial: Trial, step: int, train_loss: float) -> None:
        """A trial has reached `step`."""

    def measured(self, trial: Trial, point: Measurement, member: int) -> None:
        """The validation metrics of a trial were measured."""

    def lost(self, trial: Trial, reason: str) -> None:
        """A trial lost its worker; it is trained again."""

    def split(self, trials: Sequence[Trial], reason: str) -> None:
        """A pack of trials broke, and it is not known which of them is at fault; they are trained in smaller packs."""

    def ended(self, trial: Trial, outcome: TrialOutcome) -> None:
        """A trial has ended."""

    def beat(self) -> None:
        """A fraction of a second has passed."""


class ObserverGroup(Observer):
    """Passes every event on to several observers."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def say(self, line: str) -> None:
        """To the first alone."""
        self._observers[0].say(line)

    def planned(self, plan: Plan, settled: Collection[str], from_other_studies: int, workers: int) -> None:
        for observer in self._observers:
            observer.planned(plan, settled, from_other_studies, workers)

    def extended(self, trials: Collection[Trial], settled: Collection[str]) -> None:
        for observer in self._observers:
            observer.extended(trials, settled)

    def reused(self, trial: Trial) -> None:
        for observer in self._observers:
            observer.reused(trial)

    def started(self, trial: Trial) -> None:
        for observer in self._observers:
            observer.started(trial)

    def moved(self, trial: Trial, step: int, train_loss: float) -> None:
        for observer in self._observers:
            observer.moved(trial, step, train_loss)

    def measured(self, trial: Trial, point: Measurement, member: int) -> None:
        for observer in self._observers:
            observer.measured(trial, point, member)

    def lost(self, trial: Trial, reason: str) -> None:
        for observer in self._observers:
            observer.lost(trial, reason)

    def split(self, trials: Sequence[Trial], reason: str) -> None:
        for observer in self._observers:
            observer.split(trials, reason)

    def ended(self, trial: Trial, outcome: TrialOutcome) -> None:
        for observer in self._observers:
            observer.ended(trial, outcome)

    def beat(self) -> None:
        for observer in self._observers:
            observer.beat()

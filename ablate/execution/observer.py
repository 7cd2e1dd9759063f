"""The events of a running study."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ablate.planning.plan import Plan, Trial
from ablate.store.records import TrialOutcome
from ablate.training.events import Measurement


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

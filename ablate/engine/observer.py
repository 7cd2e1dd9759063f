"""What a study tells whoever watches it run."""

from __future__ import annotations

from collections.abc import Collection

from ablate.engine.plan import Plan, Trial
from ablate.store.records import TrialOutcome
from ablate.training.events import Point


class Observer:
    """Watches and does nothing; a display overrides what it shows."""

    def say(self, line: str) -> None:
        """One line of progress before trials run."""

    def planned(self, plan: Plan, settled: Collection[str], elsewhere: int, workers: int) -> None:
        """The plan stands; trials with a `settled` key are in the store, `elsewhere` of them from other studies."""

    def extended(self, trials: Collection[Trial], settled: Collection[str]) -> None:
        """The design asks for trials that the plan did not know; those with a `settled` key are in the store."""

    def reused(self, trial: Trial) -> None:
        """A trial was about to start when another study of the store settled it."""

    def started(self, trial: Trial) -> None:
        """A trial starts."""

    def moved(self, trial: Trial, step: int, train_loss: float) -> None:
        """A trial is at `step`."""

    def measured(self, trial: Trial, point: Point, member: int) -> None:
        """A trial's validation metrics were measured."""

    def lost(self, trial: Trial, reason: str) -> None:
        """A trial lost its worker, or the pack that it was in, and is trained again."""

    def ended(self, trial: Trial, outcome: TrialOutcome) -> None:
        """A trial ended."""

    def beat(self) -> None:
        """Called a few times a second."""

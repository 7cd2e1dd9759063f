"""What a study tells whoever watches it run."""

from __future__ import annotations

from ablate.engine.plan import Plan, PlannedTrial
from ablate.store.records import TrialOutcome
from ablate.training.events import Point


class Observer:
    """Watches and does nothing; a display overrides what it shows."""

    def say(self, line: str) -> None:
        """One line of progress before trials run."""

    def planned(self, plan: Plan, reused: int, elsewhere: int, workers: int) -> None:
        """The plan stands; `reused` of its trials are in the store, `elsewhere` of those from other studies."""

    def started(self, trial: PlannedTrial) -> None:
        """A trial starts."""

    def moved(self, trial: PlannedTrial, step: int, train_loss: float) -> None:
        """A trial is at `step`."""

    def measured(self, trial: PlannedTrial, point: Point, member: int) -> None:
        """A trial's validation metrics were measured."""

    def ended(self, trial: PlannedTrial, outcome: TrialOutcome) -> None:
        """A trial ended."""

    def beat(self) -> None:
        """Called a few times a second."""

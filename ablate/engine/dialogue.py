"""What the driver says to a design: how trials stand, and how they ended.

Several points of a design can be the same variant, so that several proposals can ask for the same trial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ablate.designs.base import Design, Proposal
from ablate.engine.attempt import Attempt
from ablate.store.records import CurvePoint, TrialOutcome, TrialRecord


@dataclass(frozen=True, slots=True)
class _End:
    """How a trial ended.

    Attributes:
        steps: That it had to do.
        value: Its objective; None if it did not finish.
        speed: Tokens a second; None if it did not finish.
    """

    steps: int
    value: float | None
    speed: float | None


class Dialogue:
    """Tells a design of each trial that it asked for, once for each proposal.

    Args:
        design: Is told.
        metric: The objective.
        curves: Reads learning curves of trials by their keys.
    """

    def __init__(
        self, design: Design, metric: str, curves: Callable[[Sequence[str]], dict[str, tuple[CurvePoint, ...]]]
    ) -> None:
        self.design = design
        self._metric = metric
        self._curves = curves
        self._ends: dict[str, _End] = {}
        self._askers: dict[str, list[Proposal]] = {}

    def ask(self, proposal: Proposal, key: str) -> bool:
        """A proposal is for this trial. True if it must be trained for it; otherwise it is told, or will be."""
        if key in self._ends:
            self._replay(proposal, key)
            self._tell(proposal, self._ends[key])
            return False
        self._askers.setdefault(key, []).append(proposal)
        return len(self._askers[key]) == 1

    def unwanted(self, attempt: Attempt) -> bool:
        """Show where a trial is; whether everyone who asked for it wants no more of it."""
        last, steps = attempt.curve[-1], attempt.trial.variant.spec.training.steps
        if not self.design.prunes or last.val_loss is None:
            return False
        askers = self._askers.get(attempt.trial.key, ())
        opinions = [self.design.watch(asker.point, asker.seed, last.step / steps, last.val_loss) for asker in askers]
        return bool(opinions) and all(opinions) and last.step < steps

    def end(self, ended: TrialOutcome | TrialRecord, steps: int, *, watched: bool) -> None:
        """A trial of so many steps is over.

        Args:
            ended: How.
            steps: That it had to do.
            watched: Whether the design was shown its curve as it came.
        """
        value = ended.metrics.get(self._metric)
        speed = ended.tokens / ended.seconds if value is not None and ended.seconds > 0 else None
        self._ends[ended.key] = end = _End(steps, value, speed)
        for proposal in self._askers.pop(ended.key, ()):
            if not watched:
                self._replay(proposal, ended.key)
            self._tell(proposal, end)

    def _replay(self, proposal: Proposal, key: str) -> None:
        """Show a design that prunes the curve that a trial once had."""
        if self.design.prunes:
            for point in self._curves([key])[key]:
                if point.val_loss is not None:
                    reached = point.step / self._ends[key].steps
                    self.design.watch(proposal.point, proposal.seed, reached, point.val_loss)

    def _tell(self, proposal: Proposal, end: _End) -> None:
        if end.speed is not None:
            self.design.timed(proposal.point, proposal.seed, end.speed)
        self.design.tell(proposal.point, proposal.seed, end.value)

"""Reports the progress and the results of trials to the design.

Several points of a design can give the same variant, so several proposals can ask for the same trial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ablate.designs.base import Design, Proposal
from ablate.execution.attempt import Attempt
from ablate.roles import TrialRole
from ablate.store.records import CurvePoint, TrialOutcome, TrialRecord


@dataclass(frozen=True, slots=True)
class _End:
    """The result of a trial.

    Attributes:
        value: Its objective; None if it did not finish.
        speed: Its tokens a second; None if it did not finish.
    """

    steps: int
    value: float | None
    speed: float | None


class Dialogue:
    """Reports each result to the design, once for each proposal that asked for the trial.

    Args:
        curves: Reads the learning curves of trials by key.
    """

    def __init__(
        self, design: Design, metric: str, curves: Callable[[Sequence[str]], dict[str, tuple[CurvePoint, ...]]]
    ) -> None:
        self.design = design
        self._metric = metric
        self._curves = curves
        self._ends: dict[str, _End] = {}
        self._askers: dict[str, list[Proposal]] = {}
        self.has_compared = False  # whether the design knows a result of a trial that is compared

    def ask(self, proposal: Proposal, key: str) -> bool:
        """Register a proposal for a trial.

        Returns:
            Whether the trial must be queued. Otherwise it is queued already, or its result has been reported to the
            design.
        """
        if key in self._ends:
            self._replay(proposal, key)
            self._tell(proposal, self._ends[key])
            return False
        self._askers.setdefault(key, []).append(proposal)
        return len(self._askers[key]) == 1

    def unwanted(self, attempt: Attempt) -> bool:
        """Report the last point of a trial; whether every proposal that asked for the trial prunes it."""
        last, steps = attempt.curve[-1], attempt.trial.variant.spec.training.steps
        if not self.design.prunes or last.val_loss is None or not steps:
            return False
        askers = self._askers.get(attempt.trial.key, ())
        opinions = [self.design.watch(asker.point, asker.seed, last.step / steps, last.val_loss) for asker in askers]
        return bool(opinions) and all(opinions) and last.step < steps

    def end(self, ended: TrialOutcome | TrialRecord, steps: int, *, watched: bool) -> None:
        """Report the result of a trial.

        Args:
            watched: Whether the design has already seen the curve.
        """
        value = ended.metrics.get(self._metric)
        speed = ended.tokens / ended.seconds if value is not None and ended.seconds > 0 else None
        self._ends[ended.key] = end = _End(steps, value, speed)
        for proposal in self._askers.pop(ended.key, ()):
            if not watched:
                self._replay(proposal, ended.key)
            self._tell(proposal, end)

    def _replay(self, proposal: Proposal, key: str) -> None:
        """Report the stored curve of a trial to a design that prunes."""
        if self.design.prunes:
            for point in self._curves([key])[key]:
                if point.val_loss is not None:
                    reached = point.step / max(1, self._ends[key].steps)
                    self.design.watch(proposal.point, proposal.seed, reached, point.val_loss)

    def _tell(self, proposal: Proposal, end: _End) -> None:
        if end.speed is not None:
            self.design.timed(proposal.point, proposal.seed, end.speed)
        self.has_compared = self.has_compared or proposal.point.role is TrialRole.COMPARISON
        self.design.tell(proposal.point, proposal.seed, end.value)

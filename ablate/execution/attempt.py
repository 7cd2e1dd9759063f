"""One attempt at a trial: it turns the events of a worker into the outcome for the store, and reports to the design.

Several points of a design can give the same variant, so several proposals can ask for the same trial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast

from ablate.designs.base import Design, Proposal
from ablate.metrics import INSIDE
from ablate.planning.plan import Trial
from ablate.roles import TrialRole
from ablate.store.records import (
    COMPILATION,
    TRANSFER,
    USAGE,
    WINDOWS,
    CurvePoint,
    RecordedValues,
    Recording,
    TrialOutcome,
    TrialRecord,
    TrialState,
    WorkerRecord,
)
from ablate.training.events import Diverged, Measurement, Started


@dataclass(slots=True)
class Attempt:
    """A trial in training.

    Attributes:
        number: 1 for the first attempt.
        member: The index of the trial in its job.
        together: The number of trials with which its job started.
        started_at: When the job was submitted to the engine.
        curve: The learning curve so far.
        recordings: The recordings inside the model so far, if the variant asks for them.
        values: The history of the hyperparameters of a member of a population; empty for other trials.
        metrics: The validation metrics at the last point of the curve.
        measured_at: Metric to its step, where it may be an earlier one.
        counts_at: The step of the objective, of a trial that has ended; None if it is the last.
        diverged: Set as soon as the loss is not finite.
        pruned_at: The step at which the design ended the trial; None if it did not.
        worker: The worker that trains it; None before one has started it.
        parted: Why the trial is not trained in the pack in which it started; empty if it is.
    """

    trial: Trial
    number: int
    member: int
    together: int
    started_at: datetime
    curve: list[CurvePoint] = field(default_factory=list)
    recordings: list[Recording] = field(default_factory=list)
    values: Sequence[tuple[int, Mapping[str, float]]] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    measured_at: Mapping[str, int] = field(default_factory=dict)
    counts_at: int | None = None
    parts: dict[str, tuple[float, ...]] = field(default_factory=dict)
    diverged: Diverged | None = None
    pruned_at: int | None = None
    worker: WorkerRecord | None = None
    parted: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the trial was trained to its last step."""
        return bool(self.curve) and self.trial.variant.spec.is_complete(self.curve[-1].step)

    @property
    def left(self) -> float:
        """The share of its steps that it has yet to train after the last point of its curve."""
        steps = self.trial.variant.spec.training.steps
        return 1 - self.curve[-1].step / steps if self.curve and steps else 1.0

    def begin_again(self) -> None:
        """Start the next attempt after the engine restarted the job; the job sends its whole curve again."""
        self.number += 1
        self.curve.clear()
        self.recordings.clear()
        self.worker = None

    def restart_with(self, values: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        """Continue from another state with this history of hyperparameters; the job sends its whole curve again."""
        self.curve.clear()
        self.recordings.clear()
        self.values = values

    def add(self, point: Measurement) -> CurvePoint:
        """Append a point to the curve, or replace that of the same step, and return it."""
        added = curve_point(point, self.member)
        if self.curve and self.curve[-1].step == added.step:
            del self.curve[-1]
        self.curve.append(added)
        self.metrics = {name: values[self.member] for name, values in point.metrics.items()}
        self.measured_at = point.measured_at
        self.parts = {name: tuple(part[self.member] for part in sums) for name, sums in point.parts.items()}
        own: RecordedValues = {}
        if point.windows and self.trial.variant.spec.training.init_from is not None:
            own[WINDOWS] = {name: [*values[self.member]] for name, values in point.windows.items()}
        if point.compile_seconds:
            own[COMPILATION] = {"seconds": point.compile_seconds}
        if point.usage:
            own[USAGE] = dict(point.usage)
        if self.trial.variant.spec.training.record_blocks:
            inside = {
                quantity: {part: values[self.member] for part, values in parts.items()}
                for quantity, parts in point.inside.items()
            }
            own |= cast(RecordedValues, inside)
        if insides := {name: value for name, value in self.metrics.items() if name.startswith(INSIDE)}:
            own["insides"] = {name: _number(value) for name, value in insides.items()}
        if self.values:
            before = [values for step, values in self.values if step < point.step or step == 0]
            own["values"] = dict(before[-1])
        if own:
            self._record(point.step, own)
        return added

    def record_transfer(self, started: Started) -> None:
        """Record what the trial has taken from trained weights."""
        transfer = {"source": started.source, "copied": started.copied, "new": started.new, "unused": started.unused}
        self._record(0, {TRANSFER: transfer})

    def _record(self, step: int, values: RecordedValues) -> None:
        """Add to what was recorded at a step."""
        before: RecordedValues = {}
        if self.recordings and self.recordings[-1].step == step:
            before = self.recordings.pop().values
        self.recordings.append(Recording(step, {**before, **values}))

    def check_finite(self, objective: str) -> None:
        """Leave out metrics whose last value is not finite; without a finite objective the trial has diverged."""
        self.counts_at, value = self.measured_at.get(objective), self.metrics.get(objective)
        if value is not None and not math.isfinite(value):
            self.diverged = Diverged(self.member, self.curve[-1].step, value, f"`{objective}`")
        self.metrics = {name: value for name, value in self.metrics.items() if math.isfinite(value)}

    def outcome(self, failure: str = "") -> TrialOutcome:
        """The outcome of the trial: failed if a failure is given, else diverged, pruned or finished.

        A finished trial has a reason if it left its pack: other members change the last digits of its losses.
        """
        reason, state = failure or self.parted, TrialState.FAILED if failure else TrialState.FINISHED
        if self.diverged is not None and not failure:
            reason, state = (
                f"{self.diverged.of} was {self.diverged.loss} at step {self.diverged.step}",
                TrialState.DIVERGED,
            )
        elif self.pruned_at is not None and not failure:
            reason, state = f"its design ended it at step {self.pruned_at}", TrialState.PRUNED
        last = self.curve[-1] if self.curve else CurvePoint(0, 0.0, 0, 0.0, None, None)
        return TrialOutcome(
            key=self.trial.key,
            variant_hash=self.trial.variant.hash,
            seed=self.trial.seed,
            state=state,
            metrics=self.metrics if state is TrialState.FINISHED else {},
            steps=last.step if self.counts_at is None else self.counts_at,
            seconds=last.seconds,
            tokens=last.tokens,
            flops=last.flops,
            stopped_at=self.diverged.step if self.diverged else self.pruned_at,
            reason=reason,
            data_fingerprint=self.trial.variant.fingerprint,
            started_at=self.started_at,
            finished_at=datetime.now(UTC),
            curve=tuple(self.curve),
            recordings=tuple(self.recordings),
            parts=self.parts if state is TrialState.FINISHED else {},
            code=self.trial.code.identity,
        )


def curve_point(point: Measurement, member: int) -> CurvePoint:
    """The record of a training point for one member of a pack."""
    measured = point.measured_at.get("val_loss", point.step) == point.step
    return CurvePoint(
        step=point.step,
        seconds=point.seconds,
        tokens=point.tokens,
        flops=point.flops,
        train_loss=_number(point.train_loss[member]),
        val_loss=_number(point.metrics["val_loss"][member]) if "val_loss" in point.metrics and measured else None,
    )


def _number(loss: float) -> float | None:
    """The loss, or None for one that is not finite: before the first step and after divergence."""
    return loss if math.isfinite(loss) else None


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
        opinions = [self._watch(asker, last, steps) for asker in self._askers.get(attempt.trial.key, ())]
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
                self._watch(proposal, point, self._ends[key].steps)

    def _watch(self, proposal: Proposal, point: CurvePoint, steps: int) -> bool:
        """Report a point to the design; whether it wishes the trial to end. Without steps there is nothing to end."""
        if point.val_loss is None or not steps:
            return False
        return self.design.watch(proposal.point, proposal.seed, point.step / steps, point.val_loss)

    def _tell(self, proposal: Proposal, end: _End) -> None:
        if end.speed is not None:
            self.design.timed(proposal.point, proposal.seed, end.speed)
        self.has_compared = self.has_compared or proposal.point.role is TrialRole.COMPARISON
        self.design.tell(proposal.point, proposal.seed, end.value)

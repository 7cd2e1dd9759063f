"""One attempt at a trial: what an engine has told of it so far, and what the store is told of it in the end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ablate.engine.plan import Trial
from ablate.store.records import CurvePoint, Recording, TrialOutcome, TrialState, WorkerRecord
from ablate.training.events import Diverged, Point


@dataclass(slots=True)
class Attempt:
    """A trial in training.

    Attributes:
        trial: What is trained.
        number: 1 for the first attempt.
        member: Its place in its job.
        together: How many trials its job began with.
        started_at: When it was handed to the engine.
        curve: Its learning curve so far.
        recordings: What was recorded inside its model so far, if its variant asks for it.
        values: What a member of a population was trained with, from which step on; nothing for all others.
        metrics: Its validation metrics at the last point of the curve.
        diverged: Set as soon as its loss is not finite.
        pruned_at: The step at which its design ended it; None if it did not.
        worker: Where it trains; None before it has reached a worker.
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
    diverged: Diverged | None = None
    pruned_at: int | None = None
    worker: WorkerRecord | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it was trained to its last step."""
        return bool(self.curve) and self.curve[-1].step == self.trial.variant.spec.training.steps

    def begin_again(self) -> None:
        """Its engine has it begun once more; what it has told so far is told again."""
        self.number += 1
        self.curve.clear()
        self.recordings.clear()
        self.worker = None

    def take(self, values: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        """Its weights are now others, which were trained with these values, from which step on; their curve is told."""
        self.curve.clear()
        self.recordings.clear()
        self.values = values

    def add(self, point: Point) -> CurvePoint:
        """Lengthen the curve by a point of training."""
        taken = curve_point(point, self.member)
        self.curve.append(taken)
        self.metrics = {name: values[self.member] for name, values in point.metrics.items()}
        own: dict[str, dict[str, Any]] = {}
        if self.trial.variant.spec.training.record_blocks:
            own = {
                quantity: {part: values[self.member] for part, values in parts.items()}
                for quantity, parts in point.inside.items()
            }
        if self.values:
            before = [values for step, values in self.values if step < point.step or step == 0]
            own["values"] = dict(before[-1])
        if own:
            self.recordings.append(Recording(point.step, own))
        return taken

    def outcome(self, failure: str = "") -> TrialOutcome:
        """How the trial ended: failed if a failure is given, else diverged, pruned or finished."""
        reason, state = failure, TrialState.FAILED if failure else TrialState.FINISHED
        if self.diverged is not None and not failure:
            reason, state = f"the loss was {self.diverged.loss} at step {self.diverged.step}", TrialState.DIVERGED
        elif self.pruned_at is not None and not failure:
            reason, state = f"its design ended it at step {self.pruned_at}", TrialState.PRUNED
        last = self.curve[-1] if self.curve else CurvePoint(0, 0.0, 0, 0.0, None, None)
        return TrialOutcome(
            key=self.trial.key,
            variant_hash=self.trial.variant.hash,
            seed=self.trial.seed,
            state=state,
            metrics=self.metrics if state is TrialState.FINISHED else {},
            steps=last.step,
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
        )


def curve_point(point: Point, member: int) -> CurvePoint:
    """A point of training as the store keeps it, of one member of its pack."""
    return CurvePoint(
        step=point.step,
        seconds=point.seconds,
        tokens=point.tokens,
        flops=point.flops,
        train_loss=_number(point.train_loss[member]),
        val_loss=_number(point.metrics["val_loss"][member]),
    )


def _number(loss: float) -> float | None:
    """A loss before the first step, or after divergence, is no number and is stored as none."""
    return loss if math.isfinite(loss) else None

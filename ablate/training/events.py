"""Events that training yields. Plain picklable values.

Lists have one entry for each of the K members with which the pack started; NaN for members that have left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Tick:
    """Progress for displays, several times a second."""

    step: int
    train_loss: list[float]


@dataclass(frozen=True, slots=True)
class Measurement:
    """A point of the learning curves of all members.

    Attributes:
        step: Number of optimizer steps done.
        seconds: Seconds of training so far without evaluation, divided by the number of members.
        tokens: Training tokens that one member has seen.
        flops: Arithmetic of one member so far: forward, backward and optimizer.
        train_loss: Mean training loss since the previous point.
        metrics: Validation metrics by name, with those of `training.insides` where they are measured.
        inside: Recordings of `training.record_blocks`, by quantity and part of the model, with one value for each
            member (`ablate.training.block_recordings`).
        parts: At the last point, validation metrics by name over each of the `PARTS` parts of the validation data
            (`ablate.training.objective`), members within; empty where it has fewer batches.
        windows: Validation metrics of each window (example) by itself, for each member: at the last step of trials that
            start from trained weights.
        compile_seconds: Seconds of compilation so far in this process, which `seconds` does not count.
        usage: What the process has used of its machine since the last such sample, by name
            (`ablate.execution.job_runner`); empty at most points.
        measured_at: Metric to the step at which it was measured, where that may be an earlier one: of a trainer of the
            user's, which need not measure each metric at its last step.
    """

    step: int
    seconds: float
    tokens: int
    flops: float
    train_loss: list[float]
    metrics: dict[str, list[float]]
    inside: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    parts: dict[str, list[list[float]]] = field(default_factory=dict)
    windows: dict[str, list[list[float]]] = field(default_factory=dict)
    compile_seconds: float = 0.0
    usage: dict[str, float] = field(default_factory=dict)
    measured_at: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Diverged:
    """The loss of a member was not finite at `step`. The other members continue, unchanged up to float32 rounding.

    Attributes:
        of: The loss, or another metric, as people call it.
    """

    member: int
    step: int
    loss: float
    of: str = "the loss"


@dataclass(frozen=True, slots=True)
class Started:
    """A member starts from trained weights.

    Attributes:
        source: What they were read from.
        copied: Names of tensors that have weights of the source.
        new: Names of tensors that the source does not have.
        unused: Names in the source that have no place in the model.
    """

    member: int
    source: str
    copied: tuple[str, ...]
    new: tuple[str, ...]
    unused: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrialWarning:
    """A note for the user on how the pack runs. It does not affect results."""

    text: str


State = dict[str, Any]
"""Tensors, numbers, strings, and lists and mappings of these, readable by `torch.load` with `weights_only=True`."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of the pack after `step`. It shares memory with the pack: save it before training continues."""

    step: int
    state: State


Event = Tick | Measurement | Diverged | Started | TrialWarning | Checkpoint

"""What training says while it runs. Plain picklable values.

Lists run over all K members with which the pack began; for one that has left they hold nan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Tick:
    """A sign of life for a display, a few times a second."""

    step: int
    train_loss: list[float]


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the learning curve of every member.

    Attributes:
        step: Optimiser steps done.
        seconds: One member's share of the seconds of training so far, evaluation left out.
        tokens: Training tokens that one member has seen.
        flops: Arithmetic of one member so far: forward, backward and optimizer.
        train_loss: Mean training loss since the previous point.
        metrics: Validation metrics by name.
        inside: What `training.record_blocks` asks for: quantity, part of the model, then a value for each member
            (`ablate.training.inside`).
    """

    step: int
    seconds: float
    tokens: int
    flops: float
    train_loss: list[float]
    metrics: dict[str, list[float]]
    inside: dict[str, dict[str, list[Any]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Diverged:
    """A member's loss was not finite at `step`; the others go on, with losses unchanged within float32 rounding."""

    member: int
    step: int
    loss: float


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that a person may want to know of how the pack runs; it changes no result."""

    text: str


State = dict[str, Any]
"""Tensors, numbers, strings, and lists and mappings of them: `torch.load` reads it with `weights_only=True`."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The pack after `step`; `state` shares memory with it, so it is to be written before training goes on."""

    step: int
    state: State


Event = Tick | Point | Diverged | Remark | Checkpoint

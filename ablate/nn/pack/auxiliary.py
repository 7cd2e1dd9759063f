"""Losses that parts of a model add to that of the task in training: load balance of experts, size of logits.

Shapes: K pack.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

_collected: ContextVar[list[Tensor] | None] = ContextVar("collected", default=None)


@contextmanager
def auxiliary_losses() -> Iterator[list[Tensor]]:
    """Context manager: collect the losses that parts add in the body, [K] each and weighted."""
    losses: list[Tensor] = []
    before = _collected.set(losses)
    try:
        yield losses
    finally:
        _collected.reset(before)


def collects_losses() -> bool:
    """Whether losses are being collected; otherwise they need not be computed."""
    return _collected.get() is not None


def add_loss(loss: Tensor) -> None:
    """Add a weighted loss [K] to that of the task; ignored outside a context that collects losses."""
    losses = _collected.get()
    if losses is not None:
        losses.append(loss)

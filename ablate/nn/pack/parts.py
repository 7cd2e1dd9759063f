"""Batches that are processed in parts (micro-batches), with statistics that are needed over the whole batch.

The load of the experts of a mixture is such a statistic: the loss that balances it is a product of two means over the
batch, which is not the mean of the products over its parts. So a first pass over all parts, without gradients, gathers
the statistics, and the second pass uses their sum.

Shapes: K pack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from torch import Tensor, nn


@dataclass(slots=True)
class Parts:
    """The statistics of a batch.

    Attributes:
        gathers: Whether this is the first pass.
        share: The share of the batch's rows that the current part has, by which the losses that a model adds, means
            over a part, are weighted.
        sums: The sum of a statistic over the parts, by module and number of its call within a forward pass.
    """

    gathers: bool = True
    share: float = 1.0
    sums: dict[tuple[int, int], Tensor] = field(default_factory=dict)


_parts: ContextVar[Parts | None] = ContextVar("parts", default=None)
_calls: ContextVar[list[int] | None] = ContextVar("calls", default=None)
_call: ContextVar[int] = ContextVar("call", default=0)
Call = tuple[Parts | None, int]


@contextmanager
def in_parts(parts: Parts, share: float) -> Iterator[None]:
    """Context manager: the body processes one part of a batch, which has this share of its rows."""
    parts.share = share
    token, calls = _parts.set(parts), _calls.set([0])
    try:
        yield
    finally:
        _parts.reset(token)
        _calls.reset(calls)


def gathers() -> bool:
    """Whether the only purpose of this forward pass is to gather statistics."""
    parts = _parts.get()
    return parts is not None and parts.gathers


def part_share() -> float:
    """The share of the batch's rows that is processed at once."""
    parts = _parts.get()
    return 1.0 if parts is None else parts.share


def next_call() -> Call:
    """The next call of a block in this forward pass, for `same_call`."""
    calls = _calls.get()
    if calls is None:
        return None, 0
    calls[0] += 1
    return _parts.get(), calls[0]


def current_call() -> Call:
    """The current call of a block."""
    return _parts.get(), _call.get()


@contextmanager
def same_call(call: Call) -> Iterator[None]:
    """Context manager: the body runs as this call of a block."""
    parts, number = _parts.set(call[0]), _call.set(call[1])
    try:
        yield
    finally:
        _parts.reset(parts)
        _call.reset(number)


def sum_over_parts(module: nn.Module, statistic: Tensor) -> Tensor:
    """The sum of a statistic of a module over all parts of the batch; unchanged if the batch is processed at once.

    Args:
        module: The module that computes it; its `needs_first_pass` is true.
        statistic: Of this part, without gradient.
    """
    parts = _parts.get()
    if parts is None:
        return statistic
    key = id(module), _call.get()
    if parts.gathers:
        parts.sums[key] = parts.sums[key] + statistic if key in parts.sums else statistic
        return statistic
    return parts.sums[key]


class Batchwise(nn.Module):
    """A module that needs statistics of whole batches in training."""

    def needs_first_pass(self, padded: bool) -> bool:
        """Whether a batch that is processed in parts needs a first pass, which gathers `sum_over_parts`.

        Args:
            padded: Whether parts may have different numbers of real tokens.
        """
        return False

    def end_step(self, total: Callable[[Tensor], Tensor] = lambda value: value) -> None:
        """Update buffers that are not trained by gradients; called after the backward pass of a step.

        Args:
            total: Sums a tensor over the processes that train the same model.
        """

"""What holds during one forward pass, as context managers.

Losses that parts of a model add, random streams of dropout, parts of a batch, blocks that are computed again, logits in
chunks.

- Batches in parts (micro-batches) have statistics that are needed over the whole batch. The load of the experts of a
  mixture is one: the loss that balances it is a product of two means over the batch, which is not the mean of the
  products over its parts. So a first pass over all parts, without gradients, gathers the statistics, and the second
  pass uses their sum.
- Activation checkpointing: a block keeps only its inputs, and the backward pass computes the rest again. Training Deep
  Nets with Sublinear Memory Cost (arXiv:1604.06174), by `torch.utils.checkpoint`.
- Losses over a large vocabulary are computed in chunks of tokens, so that the logits of a batch are never all in
  memory. Each chunk is computed again in the backward pass, which costs a second product with the matrix of the head,
  whose gradient is summed in one place (`nn.kernels.product`). The same idea, as a GPU kernel: Cut Your Losses in
  Large-Vocabulary Language Models (arXiv:2411.09009).

Shapes: K pack, B batch, T tokens, N = B·T, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ablate.nn.kernels.product import GradientSums

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


_streams: ContextVar[Sequence[torch.Generator] | None] = ContextVar("streams", default=None)


@contextmanager
def member_streams(streams: Sequence[torch.Generator] | None) -> Iterator[None]:
    """Let `dropout` draw member k's noise from `streams[k]`; None: all from torch's default generator."""
    token = _streams.set(streams)
    try:
        yield
    finally:
        _streams.reset(token)


def current_streams() -> Sequence[torch.Generator] | None:
    """The streams that `member_streams` has set."""
    return _streams.get()


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """[K, ...] to the same: in training, each element is 0 with probability p, and is divided by 1 - p otherwise."""
    if p == 0 or not training:
        return x
    streams = _streams.get()
    if streams is None:
        return F.dropout(x, p)
    noise = torch.empty_like(x, memory_format=torch.contiguous_format)
    for member, stream in zip(noise, streams, strict=True):
        member.bernoulli_(1 - p, generator=stream)
    return x * noise.div_(1 - p)


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


_active: ContextVar[bool] = ContextVar("active", default=False)
_again: ContextVar[bool] = ContextVar("again", default=False)


@contextmanager
def recomputing(active: bool) -> Iterator[None]:
    """Context manager: if `active`, blocks that run in the body are computed again in the backward pass."""
    token = _active.set(active)
    try:
        yield
    finally:
        _active.reset(token)


def recomputes() -> bool:
    """Whether blocks are to be computed again in the backward pass."""
    return _active.get() and torch.is_grad_enabled()


def is_second_pass() -> bool:
    """Whether this forward pass repeats an earlier one for the backward pass, and must not be counted again."""
    return _again.get()


def recompute(part: Callable[..., Any], *inputs: Any) -> Any:
    """The output of a part, without keeping its intermediate results.

    The second pass uses the random numbers of the first, including those of the members of a pack. Its auxiliary losses
    are computed again and discarded.
    """
    return checkpoint(part, *inputs, use_reentrant=False, context_fn=_contexts)


def _contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    return nullcontext(), _second_pass()


def _second_pass() -> AbstractContextManager[None]:
    streams, collects, call = current_streams(), collects_losses(), current_call()
    states = [stream.get_state() for stream in streams or ()]

    @contextmanager
    def again() -> Iterator[None]:
        # For a GPU the backward pass runs in another thread, without the context variables of the first pass.
        now = [stream.get_state() for stream in streams or ()]
        for stream, state in zip(streams or (), states, strict=True):
            stream.set_state(state)
        token = _again.set(True)
        try:
            with member_streams(streams), same_call(call), auxiliary_losses() if collects else nullcontext():
                yield
        finally:
            _again.reset(token)
            for stream, state in zip(streams or (), now, strict=True):
                stream.set_state(state)

    return again()


_chunk: ContextVar[int | None] = ContextVar("chunk", default=None)


@contextmanager
def chunked_logits(tokens: int | None) -> Iterator[None]:
    """Context manager: a model returns features [K, B, T, D] instead of logits in the body; None: logits as usual.

    Args:
        tokens: Number of tokens whose logits are computed at once, for losses that the model itself adds.
    """
    token = _chunk.set(tokens)
    try:
        yield
    finally:
        _chunk.reset(token)


def logit_chunk() -> int | None:
    """Number of tokens whose logits are computed at once; None for all."""
    return _chunk.get()


def sum_of_chunks(part: Callable[..., Tensor], size: int, *tensors: Tensor) -> Tensor:
    """The sum of the results of a function for chunks of tensors [K, N, ...] along their second axis."""
    count, sums = tensors[0].shape[1], GradientSums()

    def of_chunk(*pieces: Tensor) -> Tensor:
        with sums.active():  # in both passes
            return part(*pieces)

    total: Tensor | None = None
    for first in range(0, count, size):
        pieces = (tensor[:, first : first + size] for tensor in tensors)
        value: Tensor = recompute(of_chunk, *pieces)
        total = value if total is None else total + value
    assert total is not None, "a batch has tokens"
    return total

"""Dropout over a pack: each member draws from its own random stream, independent of the other members.

A pack of one draws from torch's default generator, as does any pack on a GPU: there a member's noise has the same
distribution as that of a single run, but other numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor

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

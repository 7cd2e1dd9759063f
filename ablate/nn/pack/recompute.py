"""Activation checkpointing: a part of a model keeps its inputs alone, and the backward pass computes the rest again.

Source: Training Deep Nets with Sublinear Memory Cost (arXiv:1604.06174), by `torch.utils.checkpoint`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from ablate.nn.pack.auxiliary import auxiliary_losses, collects_losses
from ablate.nn.pack.dropout import current_streams, member_streams
from ablate.nn.pack.parts import current_call, same_call

_active: ContextVar[bool] = ContextVar("active", default=False)
_again: ContextVar[bool] = ContextVar("again", default=False)


@contextmanager
def recomputing(active: bool) -> Iterator[None]:
    """While it lasts, the blocks of a model that is trained are computed again in the backward pass, if `active`."""
    token = _active.set(active)
    try:
        yield
    finally:
        _active.reset(token)


def recomputes() -> bool:
    """Whether blocks are to be computed again in the backward pass."""
    return _active.get() and torch.is_grad_enabled()


def is_second_pass() -> bool:
    """Whether this forward pass repeats an earlier one for the backward pass, so that it must count nothing twice."""
    return _again.get()


def recomputed(part: Callable[..., Any], *inputs: Any) -> Any:
    """What a part gives, kept without its intermediate results.

    The second pass has the random numbers of the first, also those of the members of a pack, and collects the same
    auxiliary losses, which are dropped.
    """
    return checkpoint(part, *inputs, use_reentrant=False, context_fn=_contexts)


def _contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    return _first_pass(), _second_pass()


@contextmanager
def _first_pass() -> Iterator[None]:
    yield


def _second_pass() -> AbstractContextManager[None]:
    streams, collects, call = current_streams(), collects_losses(), current_call()
    states = [stream.get_state() for stream in streams or ()]

    @contextmanager
    def again() -> Iterator[None]:
        # The backward pass runs in another thread for a GPU, so that nothing of the first pass is set there.
        now = [stream.get_state() for stream in streams or ()]
        for stream, state in zip(streams or (), states, strict=True):
            stream.set_state(state)
        token = _again.set(True)
        try:
            with member_streams(streams), same_call(call):
                if collects:
                    with auxiliary_losses():
                        yield
                else:
                    yield
        finally:
            _again.reset(token)
            for stream, state in zip(streams or (), now, strict=True):
                stream.set_state(state)

    return again()

"""Activation checkpointing: a part of a model keeps only its inputs, and the backward pass computes the rest again.

Source: Training Deep Nets with Sublinear Memory Cost (arXiv:1604.06174), by `torch.utils.checkpoint`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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


def recomputed(part: Callable[..., Any], *inputs: Any) -> Any:
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

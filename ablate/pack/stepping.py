"""One token after another: a mixer that keeps what the tokens before left is not given them again.

A causal mixer has such a form by having the method of `Stepping`, in its own file; any other is given all its inputs
again, which is as right and slower. Nothing is padded here. Shapes: K pack, B batch, D width.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

State = tuple[Tensor, ...]
"""What a mixer keeps of the tokens it has read, [K, B, ...] each; empty before the first."""


@runtime_checkable
class Stepping(Protocol):
    """A mixer with a recurrent or cached form."""

    def step(self, x: Tensor, place: int, state: State) -> tuple[Tensor, State]:
        """What `forward` gives for token `place` (from 0) of a sequence, and what is to be kept for the next one.

        Args:
            x: The token, [K, B, 1, D].
            place: How many tokens stand before it.
            state: What is kept of those.
        """


def step(mixer: nn.Module, x: Tensor, place: int, state: State) -> tuple[Tensor, State]:
    """The step of any causal mixer; see `Stepping.step`."""
    if isinstance(mixer, Stepping):
        return mixer.step(x, place, state)
    inputs = torch.cat([*state, x], 2)
    return mixer(inputs)[:, :, -1:], (inputs,)

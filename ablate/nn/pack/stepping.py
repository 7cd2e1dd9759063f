"""Cached decoding: a mixer with a state of the previous tokens does not read them again.

A causal mixer supports this by the method of `Stepping`; any other mixer reads all its inputs again, with the same
result but slower. Inputs have no padding. Shapes: K pack, B batch, D width.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

State = tuple[Tensor, ...]
"""The state of a mixer after the tokens read so far, tensors [K, B, ...]; empty before the first."""


@runtime_checkable
class Stepping(Protocol):
    """A mixer with a recurrent or cached form."""

    def step(self, x: Tensor, place: int, state: State) -> tuple[Tensor, State]:
        """The output of `forward` at token `place` (from 0) of a sequence, and the state for the next token.

        Args:
            x: The token, [K, B, 1, D].
            place: The number of tokens before it.
            state: The state after those tokens.
        """


def step(mixer: nn.Module, x: Tensor, place: int, state: State, shared: State = ()) -> Any:
    """The step of any causal mixer, with the arguments and results of `Stepping.step`.

    A mixer that reads tensors of earlier layers gets those of this token in `shared`; one that publishes tensors
    returns them after its state (`ablate.spec.part.PartSpec`).
    """
    if isinstance(mixer, Stepping):
        return mixer.step(x, place, state, shared=shared) if shared else mixer.step(x, place, state)  # type: ignore[call-arg]
    now = (x, *shared)
    kept = tuple(torch.cat([before, new], 2) for before, new in zip(state, now, strict=True)) if state else now
    made = mixer(kept[0], shared=kept[1:]) if shared else mixer(kept[0])
    if isinstance(made, Tensor):
        return made[:, :, -1:], kept
    y, published = made
    return y[:, :, -1:], kept, tuple(tensor[:, :, -1:] for tensor in published)


def extended(state: State, now: State, window: int | None) -> State:
    """Cached tensors [..., T, d] with those of the next token, [..., 1, d]; only the last `window` tokens are kept."""
    grown = tuple(torch.cat([before, new], -2) for before, new in zip(state, now, strict=True)) if state else now
    return grown if window is None else tuple(kept[..., -window:, :] for kept in grown)

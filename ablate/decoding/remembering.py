"""A `Step` for a search over a model that keeps what it has read: every prefix goes on from the one it grew out of.

Shapes: K pack, N prefixes, T tokens so far, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

States = tuple[tuple[Tensor, ...], ...]
"""What each layer keeps of the prefixes, [K, N, ...] each; empty before the first token."""

Advance = Callable[[Tensor, Tensor, int, States], tuple[Tensor, States]]
"""(rows [N]: which text each prefix belongs to; its last token [N]; how many stand before it; what is kept of those) to
logits of the next token [N, V], and what is kept now."""


class Remembering:
    """Reads of every prefix only the token that is new. For one search, whose prefixes grow by a token at a time.

    Args:
        advance: Reads one more token; the model's part.
    """

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._states: States = ()
        self._places: dict[tuple[int, ...], int] = {}

    def __call__(self, rows: Tensor, prefixes: Tensor) -> Tensor:
        """See `search.Step`."""
        before = prefixes.shape[1] - 1
        names = [(row, *prefix) for row, prefix in zip(rows.tolist(), prefixes.tolist(), strict=True)]
        states = self._states
        if before:
            parents = torch.tensor([self._places[name[:-1]] for name in names], device=prefixes.device)
            states = tuple(tuple(kept[:, parents] for kept in layer) for layer in states)
        logits, self._states = self._advance(rows, prefixes[:, -1], before, states)
        self._places = {name: place for place, name in enumerate(names)}
        return logits

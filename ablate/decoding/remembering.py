"""`NextLogits` of a model that caches: each prefix continues from the cached state of the prefix that it extends.

Shapes: K pack, N prefixes, T tokens so far, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

States = tuple[tuple[Tensor, ...], ...]
"""The cached tensors of each layer, [K, N, ...] each; empty before the first token."""

Advance = Callable[[Tensor, Tensor, int, States], tuple[Tensor, States]]
"""Maps (rows [N]: the text that each prefix belongs to; last tokens [N]; number of tokens before them; cached states of
these tokens) to the logits of the next token [N, V] and the new states."""


class Remembering:
    """Reads only the last token of each prefix. Serves one search, in which all prefixes grow by one token a call.

    Args:
        advance: The forward pass of the model for one more token.
    """

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._states: States = ()
        self._places: dict[tuple[int, ...], int] = {}

    def __call__(self, rows: Tensor, prefixes: Tensor) -> Tensor:
        """The logits of the next token; the signature is that of `NextLogits`."""
        before = prefixes.shape[1] - 1
        names = [(row, *prefix) for row, prefix in zip(rows.tolist(), prefixes.tolist(), strict=True)]
        states = self._states
        if before:
            parents = torch.tensor([self._places[name[:-1]] for name in names], device=prefixes.device)
            states = tuple(tuple(kept[:, parents] for kept in layer) for layer in states)
        logits, self._states = self._advance(rows, prefixes[:, -1], before, states)
        self._places = {name: place for place, name in enumerate(names)}
        return logits

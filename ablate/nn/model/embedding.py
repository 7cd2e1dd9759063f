"""What looks back in the embedding: hashed pairs of tokens, and a share of the embedding before.

Shapes: K pack, B batch, T tokens, D width, V vocabulary, R rows of the table of pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ablate.nn.pack import Embedding, Packed, linear, zeros
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.embedding import BigramSpec, SmearSpec
from ablate.spec.layer import LayerContext

_NOW, _BEFORE = 36313, 27191
"""Factors of the hash of a pair."""


class Bigrams(nn.Module):
    """The table of pairs; see `BigramSpec`."""

    def __init__(self, spec: BigramSpec, context: LayerContext, vocabulary: int) -> None:
        super().__init__()
        width = spec.width or context.width
        self.rows = spec.rows(vocabulary)
        self.table = Embedding(context.pack, self.rows, width, initial=zeros)
        self.widen = None if width == context.width else linear(context, width, context.width)

    def forward(self, tokens: Tensor, before: Tensor | None) -> Tensor:
        """Ids [K, B, T], and the one before the first [K, B, 1] if there is one, to [K, B, T, D]."""
        hashed = pairs(tokens, before, self.rows)
        x: Tensor = self.table(hashed)
        return x if self.widen is None else self.widen(x)


def pairs(tokens: Tensor, before: Tensor | None, rows: int) -> Tensor:
    """Row of each id and the one before it, [K, B, T]; that of an id without one before it is the last."""
    previous = torch.cat([tokens[..., :1] if before is None else before, tokens[..., :-1]], -1)
    rows_of_pairs = ((_NOW * tokens) ^ (_BEFORE * previous)) % (rows - 1)
    if before is not None:
        return rows_of_pairs
    return torch.cat([torch.full_like(rows_of_pairs[..., :1], rows - 1), rows_of_pairs[..., 1:]], -1)


class Smear(Packed):
    """A share of the embedding before; see `SmearSpec`."""

    gate: Tensor
    scale: Tensor

    def __init__(self, spec: SmearSpec, context: LayerContext) -> None:
        super().__init__(context.pack)
        self.inputs = spec.inputs
        self.declare("gate", (spec.inputs, 1), zeros)
        self.declare("scale", (1,), zeros)

    def forward(self, x: Tensor, before: Tensor | None) -> Tensor:
        """Embeddings [K, B, T, D], and the one before the first [K, B, 1, D] if there is one, to [K, B, T, D]."""
        first = torch.zeros_like(x[:, :, :1]) if before is None else before
        previous = torch.cat([first, x[:, :, :-1]], 2)
        share = (x[..., : self.inputs] @ self.gate.unsqueeze(1)).sigmoid() * self.scale.view(-1, 1, 1, 1)
        return x + share * previous


class Segments(nn.Module):
    """A table [segments, D]; see `ModelSpec.segments`."""

    def __init__(self, segments: int, context: LayerContext) -> None:
        super().__init__()
        shape = (segments, context.width)
        self.table = Embedding(context.pack, *shape, initial=context.initial("embedding", *shape))

    def forward(self, x: Tensor) -> Tensor:
        """Embeddings [K, B, T, D] of texts that are segment 0, to the same with its row."""
        return x + self.table.weight[:, 0, None, None]


def bigram_cost(spec: BigramSpec, width: int, vocabulary: int, length: int) -> Cost:
    """Cost of `Bigrams` over one sequence, and of adding it to the embedding."""
    own = spec.width or width
    total = Cost(parameters=spec.rows(vocabulary) * own, additions=length * width)
    return total if own == width else total + linear_cost(length, own, width)


def smear_cost(spec: SmearSpec, width: int, length: int) -> Cost:
    """Cost of `Smear` over one sequence; kept are embeddings and shares."""
    return Cost(
        parameters=spec.inputs + 1,
        multiplications=length * (spec.inputs + 1 + width),
        additions=length * (spec.inputs + width),
        exponentiations=length,
        divisions=length,
        activations=length * (2 * width + 3),
    )

"""Positions that are added to the embedding: x_t ← x_t + p_t.

`learned`: one trainable row p_t for each position.

- Convolutional Sequence to Sequence Learning (arXiv:1705.03122), section 3.1; also in BERT and GPT-2

`sinusoidal`: p_t = PE(t, ·), PE(t, 2i) = sin(t / 10000^(2i/D)), PE(t, 2i+1) = cos of the same.

- Attention Is All You Need (arXiv:1706.03762), section 3.5; https://arxiv.org/abs/1706.03762

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ablate.nn.pack import Packed, zeros
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext, PositionSpec


class LearnedSpec(PositionSpec):
    """A trainable row for each position, added to the token embedding."""

    source = "arXiv:1705.03122 sec. 3.1"
    applied = "embedding"

    value_fields = frozenset({"start"})

    kind: Literal["learned"] = "learned"
    start: Literal["normal", "zero"] = "normal"
    """Initial values: `normal`, by the model's initialiser for embeddings, or `zero` (SimpleTRON's code)."""

    def longest_input(self, context: LayerContext) -> int:
        """There are as many rows as tokens in the context."""
        return context.context

    def build(self, context: LayerContext) -> LearnedPositions:
        return LearnedPositions(self, context)

    def cost(self, context: LayerContext, length: int, *, key_heads: int = 0, pairs: int = 0) -> Cost:
        return Cost(parameters=context.context * context.width, additions=length * context.width)


class LearnedPositions(Packed):
    """The module of `LearnedSpec`."""

    is_table = True
    weight: Tensor

    def __init__(self, spec: LearnedSpec, context: LayerContext) -> None:
        super().__init__(context.pack)
        shape = (context.context, context.width)
        start = zeros if spec.start == "zero" else context.initial("embedding", *shape)
        self.declare("weight", shape, start, decay=True)

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        """[K, B, T, D], the tokens from position `first` on, to the same."""
        return x + self.weight[:, None, first : first + x.shape[2]]


class SinusoidalSpec(PositionSpec):
    """Sines and cosines of geometrically spaced frequencies, added to the token embedding."""

    source = "arXiv:1706.03762 sec. 3.5"
    applied = "embedding"

    kind: Literal["sinusoidal"] = "sinusoidal"

    def build(self, context: LayerContext) -> SinusoidalPositions:
        return SinusoidalPositions(context.context, context.width)

    def cost(self, context: LayerContext, length: int, *, key_heads: int = 0, pairs: int = 0) -> Cost:
        """The table is made once."""
        return Cost(additions=length * context.width)


class SinusoidalPositions(nn.Module):
    """The module of `SinusoidalSpec`."""

    table: Tensor

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.register_buffer("table", _table(context, width), persistent=False)

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        """[K, B, T, D], the tokens from position `first` on, to the same; beyond the context too."""
        end = first + x.shape[2]
        table = self.table if end <= len(self.table) else _table(end, x.shape[3]).to(self.table)
        return x + table[first:end]


def _table(length: int, width: int) -> Tensor:
    """PE, [length, width]."""
    position = torch.arange(length, dtype=torch.float64)[:, None]
    pair = torch.arange(0, width, 2, dtype=torch.float64)
    angle = position / 10000.0 ** (pair / width)
    table = torch.zeros(length, width)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : width // 2]
    return table

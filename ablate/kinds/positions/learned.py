"""Learned positions: x_t ← x_t + p_t, one trainable row p_t for each position.

- Convolutional Sequence to Sequence Learning (arXiv:1705.03122), section 3.1; also in BERT and GPT-2

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

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

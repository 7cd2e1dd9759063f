"""Rotary positions: in queries and keys, pair (i, i + d_h/2) of position t turns by t·base^(-2i/d_h).

Products of rotated queries and keys then depend on the distance of their positions alone.

- RoFormer (arXiv:2104.09864), eqs 14 to 16 and 34; https://arxiv.org/abs/2104.09864

Shapes: K pack, B batch, T tokens, H heads, d_h head width.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from ablate.nn.kernels.relative_positions import rotate
from ablate.spec.base import refusal
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext
from ablate.spec.position import PositionSpec


class RotarySpec(PositionSpec):
    """Queries and keys turn by angles that grow with the position."""

    source = "arXiv:2104.09864 eqs 14-16, 34"
    applied = "query_key"

    kind: Literal["rotary"] = "rotary"
    base: float = Field(default=10000.0, gt=1)
    """Pair i of a head turns by base^(-2i/d_h) a position: with a larger base more pairs turn slowly."""

    def check(self, context: LayerContext) -> None:
        """See `PositionSpec.check`."""
        if context.head_width % 2:
            raise refusal(
                (),
                context.head_width,
                "rotary positions turn pairs, so the width of a head must be even",
                "Change `model.width`, `model.heads` or `model.head_width`, or `model.positions`.",
            )

    def build(self, context: LayerContext) -> Rotary:
        """See `PositionSpec.build`."""
        return Rotary(self.base)

    def cost(self, context: LayerContext, length: int, *, key_heads: int = 0, pairs: int = 0) -> Cost:
        """See `PositionSpec.cost`: four products and two sums for each pair of queries and keys."""
        elements = length * context.head_width * (context.heads + key_heads)
        return Cost(multiplications=2 * elements, additions=elements)


class Rotary(nn.Module):
    """The module of `RotarySpec`."""

    def __init__(self, base: float) -> None:
        super().__init__()
        self.base = base

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        """Queries or keys [K, B, H, T, d_h], from position `first` on, to the same."""
        return rotate(x, first, self.base)

"""ALiBi: -m_h·|i - j| is added to the logits of head h, with slopes m_h = 2^(-8h/H), h = 1 ... H.

- Train Short, Test Long (arXiv:2108.12409), section 3; https://arxiv.org/abs/2108.12409

Shapes: K pack, B batch, T tokens, H heads, d_h head width.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from ablate.nn.kernels.relative_positions import alibi_bias
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext
from ablate.spec.position import PositionSpec


class AlibiSpec(PositionSpec):
    """A bias of the logits that falls with the distance, at another rate in each head."""

    source = "arXiv:2108.12409 sec. 3"
    applied = "logits"

    kind: Literal["alibi"] = "alibi"

    def build(self, context: LayerContext) -> Alibi:
        """See `PositionSpec.build`."""
        return Alibi(context.heads)

    def cost(self, context: LayerContext, length: int, *, key_heads: int = 0, pairs: int = 0) -> Cost:
        """See `PositionSpec.cost`: a sum for each logit."""
        return Cost(additions=context.heads * pairs)


class Alibi(nn.Module):
    """The module of `AlibiSpec`."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, q: Tensor, length: int, first: int = 0) -> Tensor:
        """For queries [K, B, H, T, d_h] from position `first` on and `length` keys: [H, T, length]."""
        return alibi_bias(self.heads, length, q.device, q.dtype, first)[:, : q.shape[-2]]

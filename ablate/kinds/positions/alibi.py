"""ALiBi: -m_h·|i - j| is added to the logits of head h, with slopes m_h = 2^(-8h/H), h = 1 ... H.

If the number of heads H is not a power of two, the released code and Bloom differ from the paper: with n = 2^⌊log2 H⌋,
the first n heads have the slopes of n heads, and the others every second slope of 2n heads.

- Train Short, Test Long (arXiv:2108.12409), section 3; https://arxiv.org/abs/2108.12409
- `transformers`, `models/bloom`, `build_alibi_tensor`

Shapes: K pack, B batch, T tokens, H heads, d_h head width.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from ablate.nn.kernels.relative_positions import alibi_bias
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext, PositionSpec


class AlibiSpec(PositionSpec):
    """A bias of the logits that falls linearly with the distance, with a different slope in each head."""

    source = "arXiv:2108.12409 sec. 3"
    applied = "logits"

    kind: Literal["alibi"] = "alibi"
    slopes: Literal["geometric", "bloom"] = "geometric"
    """`geometric`: 2^(-8h/H) for any H, as in the paper; `bloom`: as in its code and in Bloom. They differ where H is
    not a power of two."""

    def build(self, context: LayerContext) -> Alibi:
        return Alibi(self, context.heads)

    def cost(self, context: LayerContext, length: int, *, key_heads: int = 0, pairs: int = 0) -> Cost:
        """An addition for each logit."""
        return Cost(additions=context.heads * pairs)


class Alibi(nn.Module):
    """The module of `AlibiSpec`."""

    def __init__(self, spec: AlibiSpec, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.bloom = spec.slopes == "bloom"

    def forward(self, q: Tensor, length: int, first: int = 0) -> Tensor:
        """For queries [K, B, H, T, d_h] from position `first` on and `length` keys: [H, T, length]."""
        return alibi_bias(self.heads, length, q.device, q.dtype, first, bloom=self.bloom)[:, : q.shape[-2]]

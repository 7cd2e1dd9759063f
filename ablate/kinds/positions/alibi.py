"""ALiBi: -m_h·|i - j| is added to the logits of head h, with slopes m_h = 2^(-8h/H), h = 1 ... H.

If the number of heads H is not a power of two, the released code and Bloom differ from the paper: with n = 2^⌊log2 H⌋,
the first n heads have the slopes of n heads, and the others every second slope of 2n heads. Hard ALiBi has no slopes:
head h of the first `bounded_heads` sees tokens with |i - j| < h, and the other heads see all without positions.

- Train Short, Test Long (arXiv:2108.12409), section 3; https://arxiv.org/abs/2108.12409
- `transformers`, `models/bloom`, `build_alibi_tensor`
- Repeat After Me (arXiv:2402.01032), section 3.1, hard ALiBi; https://github.com/sjelassi/transformers_ssm_copy, whose
  attention (`hard_alibi_model.py`) was run beside it in double precision: outputs differ by 3e-16

Shapes: K pack, B batch, T tokens, H heads, d_h head width.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from ablate.nn.kernels.softmax_attention import alibi_bias
from ablate.spec.base import refusal
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
    bounded_heads: int | None = Field(default=None, ge=1)
    """If set, hard ALiBi with so many bounded heads, 8 of 12 in the authors' code."""

    @model_validator(mode="after")
    def _has_slopes_or_bounds(self) -> Self:
        if self.bounded_heads is not None and self.slopes != "geometric":
            raise refusal(
                ("slopes",), self.slopes, "hard ALiBi has no slopes", "Leave `slopes` or `bounded_heads` out."
            )
        return self

    def check(self, context: LayerContext) -> None:
        """Refuse more bounded heads than there are."""
        if self.bounded_heads is not None and self.bounded_heads > context.heads:
            raise refusal(
                ("bounded_heads",),
                self.bounded_heads,
                f"the layer has {context.heads} heads",
                f"Set `bounded_heads: {context.heads}` at most.",
            )

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
        self.bounded = spec.bounded_heads

    def forward(self, q: Tensor, length: int, first: int = 0) -> Tensor:
        """For queries [K, B, H, T, d_h] from position `first` on and `length` keys: [H, T, length]."""
        if self.bounded is not None:
            position = torch.arange(length, device=q.device)
            distance = (position[first : first + q.shape[-2], None] - position).abs()
            head = torch.arange(self.heads, device=q.device)
            bounds = torch.where(head < self.bounded, (head + 1).clamp(max=length), length)
            hidden = distance >= bounds[:, None, None]
            return torch.zeros_like(hidden, dtype=q.dtype).masked_fill(hidden, -torch.inf)
        return alibi_bias(self.heads, length, q.device, q.dtype, first, bloom=self.bloom)[:, : q.shape[-2]]

"""Positions that are added to the logits of attention.

`alibi`: -m_h·|i - j| is added to the logits of head h, with slopes m_h = 2^(-8h/H), h = 1 ... H.

If the number of heads H is not a power of two, the released code and Bloom differ from the paper: with n = 2^⌊log2 H⌋,
the first n heads have the slopes of n heads, and the others every second slope of 2n heads. Hard ALiBi has no slopes:
head h of the first `bounded_heads` sees tokens with |i - j| < h, and the other heads see all without positions.

- Train Short, Test Long (arXiv:2108.12409), section 3; https://arxiv.org/abs/2108.12409
- `transformers`, `models/bloom`, `build_alibi_tensor`
- Repeat After Me (arXiv:2402.01032), section 3.1, hard ALiBi; https://github.com/sjelassi/transformers_ssm_copy, whose
  attention (`hard_alibi_model.py`) was run beside it in double precision: outputs differ by 3e-16

`t5_buckets`: a trained scalar b[bucket(j - i), h] is added to the logit of query i and key j in head h.

Each short distance has a bucket, longer ones share buckets of geometrically growing size, and all from
`longest_distance` on share the last. In bidirectional attention half of the buckets are for later tokens. Each layer
has its own table, as in UMT5, or all layers share one (`shared`), as in T5.

- Exploring the Limits of Transfer Learning (arXiv:1910.10683), section 2.1; https://arxiv.org/abs/1910.10683
- `transformers`, `models/t5`, `_relative_position_bucket`

Shapes: K pack, B batch, T tokens, H heads, d_h head width.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from ablate.nn.kernels.softmax_attention import alibi_bias, distance_buckets
from ablate.nn.pack import Packed
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


class T5BucketsSpec(PositionSpec):
    """A trained bias of the logits for each bucket of distances and each head."""

    source = "arXiv:1910.10683 sec. 2.1"
    applied = "logits"

    kind: Literal["t5_buckets"] = "t5_buckets"
    buckets: int = Field(default=32, ge=4, le=4096)
    """Number of buckets, including those of later tokens."""
    longest_distance: int = Field(default=128, ge=2)
    """The distance from which all tokens share one bucket."""
    shared: bool = False
    """Whether all layers of a stack have one table (T5); otherwise each has its own (UMT5)."""

    @property
    def one_for_all_layers(self) -> bool:
        return self.shared

    def check(self, context: LayerContext) -> None:
        single = self.buckets // (2 if context.causal else 4)
        if self.longest_distance <= single:
            raise refusal(
                ("longest_distance",),
                self.longest_distance,
                f"of {self.buckets} buckets the first {single} hold one distance each, and the longest must be greater",
                f"Set `longest_distance: {single + 1}` at least, or fewer `buckets`.",
            )

    def build(self, context: LayerContext) -> T5Buckets:
        return T5Buckets(self, context)

    def cost(self, context: LayerContext, length: int, *, key_heads: int = 0, pairs: int = 0) -> Cost:
        """An addition for each logit, and the bucket of each pair of tokens, once for all heads: log(d / e) / c."""
        return Cost(
            parameters=self.buckets * context.heads,
            additions=context.heads * pairs,
            divisions=2 * pairs,
            exponentiations=pairs,
        )


class T5Buckets(Packed):
    """The module of `T5BucketsSpec`."""

    is_table = True
    weight: Tensor

    def __init__(self, spec: T5BucketsSpec, context: LayerContext) -> None:
        super().__init__(context.pack)
        self.spec = spec
        self.share_key = (spec, context.heads) if spec.shared else None
        self.causal = context.causal
        shape = (spec.buckets, context.heads)
        self.declare("weight", shape, context.initial("embedding", *shape), decay=True)

    def forward(self, q: Tensor, length: int, first: int = 0) -> Tensor:
        """For queries [K, B, H, T, d_h] from position `first` on and `length` keys: [K, 1, H, T, length]."""
        bucket = distance_buckets(
            q.shape[-2],
            length,
            q.device,
            first=first,
            buckets=self.spec.buckets,
            longest=self.spec.longest_distance,
            causal=self.causal,
        )
        return self.weight[:, bucket].permute(0, 3, 1, 2).unsqueeze(1).to(q.dtype)

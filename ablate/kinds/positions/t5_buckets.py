"""T5's relative positions: a trained scalar b[bucket(j - i), h] is added to the logit of query i and key j in head h.

Each short distance has a bucket, longer ones share buckets of geometrically growing size, and all from
`longest_distance` on share the last. In bidirectional attention half of the buckets are for later tokens. Each layer
has its own table, as in UMT5, or all layers share one (`shared`), as in T5.

- Exploring the Limits of Transfer Learning (arXiv:1910.10683), section 2.1; https://arxiv.org/abs/1910.10683
- `transformers`, `models/t5`, `_relative_position_bucket`

Shapes: K pack, B batch, T tokens, H heads, d_h head width.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from ablate.nn.kernels.softmax_attention import distance_buckets
from ablate.nn.pack import Packed
from ablate.spec.base import refusal
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext, PositionSpec


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
        """An addition for each logit."""
        return Cost(parameters=self.buckets * context.heads, additions=context.heads * pairs)


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

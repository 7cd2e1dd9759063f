"""Differential attention: the difference of two attention matrices, which cancels the attention that both pay to noise.

A = softmax(Q₁·K₁ᵀ/√d) - λ·softmax(Q₂·K₂ᵀ/√d); y = (1 - λ₀)·RMSNorm(A·V) for each of H heads with values of width 2d;
λ = exp(λ_q1·λ_k1) - exp(λ_q2·λ_k2) + λ₀, with four trained vectors λ ∈ R^d, N(0, 0.1²) at the start, shared by the
heads of a layer; λ₀ = 0.8 - 0.6·e^(-0.3·l) in layer l, counted from 0. The norm is over one head; all heads share its
gain.

- Differential Transformer (arXiv:2410.05258), eqs 1 to 3; https://arxiv.org/abs/2410.05258
- https://github.com/microsoft/unilm (`Diff-Transformer/multihead_diffattn.py`)

Shapes: K pack, B batch, T tokens, D width, H heads, d = D/(2H) width of queries and keys.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch.nn.functional as F
from pydantic import Field, ValidationError
from torch import Tensor, nn

from ablate.nn.kernels.softmax_attention import attend
from ablate.nn.pack import (
    ConvolutionSlot,
    Packed,
    RMSNorm,
    State,
    build_positions,
    convolved_together,
    extend_cache,
    join_heads,
    linear,
    normal,
    split_heads,
    visible_pairs,
    visible_tokens,
)
from ablate.spec.base import refusal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec, check_groups

_LAMBDA_STD = 0.1


class DifferentialAttentionSpec(MixerSpec):
    """Differential attention: one attention matrix minus λ times another."""

    source = "arXiv:2410.05258 eqs 1-3"
    complexity = "L²d"
    uses_heads = True
    any_head_width = True
    relative_positions = frozenset({"query_key"})
    takes_window = True

    kind: Literal["differential_attention"] = "differential_attention"
    kv_heads: int | None = Field(default=None, ge=1)
    """Heads of keys and values, each shared by a group of query heads; unless set, one for each query head."""
    eps: float = Field(default=1e-5, gt=0)
    """ε of the norm of each head."""

    def check(self, context: LayerContext) -> None:
        groups = self.kv_heads or context.heads
        check_groups("kv_heads", groups, context.heads, "the key and value heads must divide the {} query heads")
        if context.head_width % 2:
            raise refusal(
                (),
                context.head_width,
                "each head has two queries and two keys, so its width must be even",
                "Change `model.width`, `model.heads` or `model.head_width`.",
            )
        if context.positions is not None:
            try:
                context.positions.check(self.positions_context(context))
            except ValidationError:
                raise refusal(
                    (),
                    context.head_width,
                    f"queries and keys have half the width of a head, {context.head_width // 2}, and "
                    f"{context.positions.kind_name()} positions cannot be applied to this number of channels",
                    "Set a `head_width` that is a multiple of 4, or other positions.",
                ) from None

    def separates_documents(self) -> bool:
        """Yes, by the mask of its attention."""
        return True

    def positions_context(self, context: LayerContext) -> LayerContext:
        """The head width is that of a query, half the width of a head."""
        return replace(context, head_width=context.head_width // 2)

    def build(self, context: LayerContext) -> DifferentialAttention:
        return DifferentialAttention(self, context)

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        return (
            (("query", "W_Q"), ("key", "W_K"), ("value", "W_V")),
            (("products", "A = softmax(Q₁K₁ᵀ/√d) - λ softmax(Q₂K₂ᵀ/√d)"),),
            (("norm", "(1 - λ₀) RMSNorm by head"),),
            (("output", "W_O"),),
        )

    def convolved_width(self, context: LayerContext) -> int:
        return context.head_width * (context.heads + 2 * (self.kv_heads or context.heads))

    def cache(self, context: LayerContext, length: int) -> int:
        """Keys and values."""
        return 2 * min(length, context.window or length) * context.head_width * (self.kv_heads or context.heads)

    def cost(self, context: LayerContext, length: int) -> Cost:
        wide, h, d_h = context.width, context.heads, context.head_width
        inner, d_kv = context.inner_width, d_h * (self.kv_heads or h)
        maps = linear_cost(length, wide, inner) + linear_cost(length, wide, d_kv) * 2 + linear_cost(length, inner, wide)
        pairs = visible_pairs(context, length)
        # Two maps, each from queries and keys of half the width to all values.
        core = Cost(
            multiplications=pairs * h * (d_h + 2 * d_h),
            additions=pairs * h * (d_h - 2) + 2 * (pairs - length) * h * (d_h + 1),
            divisions=4 * pairs * h,
            exponentiations=2 * pairs * h,
        )
        elements, rows = length * inner, length * h
        joined = Cost(
            parameters=2 * d_h + d_h,  # four λ of d_h/2, and the gain
            multiplications=4 * elements + rows,
            additions=2 * elements,
            divisions=elements,
        )
        masked = 2 * length * length if context.window else 0
        # Kept: the input; queries and keys of both maps, zero-padded to the width of the values; the values; both
        # results and their row sums; the root mean square of each head, and the input of the norm's gain.
        kept = length * wide + 4 * elements + elements + 2 * elements + 2 * rows + elements + rows + masked
        total = replace(maps + core + joined, activations=kept + elements)
        if context.positions is not None:
            halved = replace(self.positions_context(context), heads=2 * h)
            total += context.positions.cost(halved, length, key_heads=2 * (self.kv_heads or h))
        return total


class DifferentialAttention(nn.Module):
    """The module of `DifferentialAttentionSpec`."""

    def __init__(self, spec: DifferentialAttentionSpec, context: LayerContext) -> None:
        super().__init__()
        d, inner = context.width, context.inner_width
        self.heads, self.kv_heads = context.heads, spec.kv_heads or context.heads
        self.causal, self.window = context.causal, context.window
        self.query = linear(context, d, inner)
        self.key = linear(context, d, self.kv_heads * context.head_width)
        self.value = linear(context, d, self.kv_heads * context.head_width)
        self.output = linear(context, inner, d, role="output")
        self.convolution = ConvolutionSlot.of(context, "on_qkv", spec.convolved_width(context))
        self.norm = RMSNorm(context.pack, context.head_width, spec.eps)
        self.start = 0.8 - 0.6 * math.exp(-0.3 * context.layer)
        self.share = Share(context.pack, context.head_width // 2, self.start)
        self.positions = build_positions(spec.positions_context(context), "query_key")

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real, or numbers documents."""
        q, k, v = self._heads(x, 0)
        mask = visible_tokens(x, padding, causal=self.causal, window=self.window)
        causal = self.causal and mask is None
        first, second = (attend(*heads, mask, is_causal=causal) for heads in self._pairs(q, k, v))
        return self._project_output(first, second, x)

    def step(self, x: Tensor, position: int, state: State) -> tuple[Tensor, State]:
        """The state: keys and values."""
        q, *now = self._heads(x, position)
        state = extend_cache(state, tuple(now), self.window)
        first, second = (F.scaled_dot_product_attention(*heads) for heads in self._pairs(q, *state))
        return self._project_output(first, second, x), state

    def _heads(self, x: Tensor, first: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [K, B, 2H, T, d], keys [K, B, 2G, T, d] and values [K, B, G, T, 2d], from position `first` on."""
        queries, keys, values = convolved_together(self.convolution, self.query(x), self.key(x), self.value(x))
        q, k = split_heads(queries, 2 * self.heads), split_heads(keys, 2 * self.kv_heads)
        if self.positions is not None:
            q, k = self.positions(q, first), self.positions(k, first)
        return q, k, split_heads(values, self.kv_heads)

    def _pairs(self, q: Tensor, k: Tensor, v: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        """The queries, keys and values of both maps, [K·B, H, T, ...]."""
        many = self.heads // self.kv_heads
        v = v.repeat_interleave(many, 2).flatten(0, 1)
        pairs = []
        for which in (0, 1):
            queries, keys = q[:, :, which::2], k[:, :, which::2].repeat_interleave(many, 2)
            pairs.append((queries.flatten(0, 1), keys.flatten(0, 1), v))
        return pairs

    def _project_output(self, first: Tensor, second: Tensor, x: Tensor) -> Tensor:
        """Both results [K·B, H, T, 2d] to [K, B, T, D]."""
        first, second = (y.view(*x.shape[:2], *y.shape[1:]) for y in (first, second))
        y = self.norm(first - self.share() * second) * (1 - self.start)
        mixed: Tensor = self.output(join_heads(y))
        return mixed


class Share(Packed):
    """λ, trained, one for all heads of a layer."""

    query_1: Tensor
    key_1: Tensor
    query_2: Tensor
    key_2: Tensor

    def __init__(self, pack: int, width: int, start: float) -> None:
        super().__init__(pack)
        self.start = start
        for name in ("query_1", "key_1", "query_2", "key_2"):
            self.declare(name, (width,), normal(_LAMBDA_STD))

    def forward(self) -> Tensor:
        """λ, [K, 1, 1, 1, 1]."""
        products = (self.query_1 * self.key_1).sum(-1).exp() - (self.query_2 * self.key_2).sum(-1).exp()
        return (products + self.start).view(-1, 1, 1, 1, 1)

"""PaTH attention: softmax attention whose positions are products of Householder-like maps that tokens choose.

a_ij = k_jᵀ·H_{j+1}···H_i·q_i/√d for j ≤ i, H_t = I - β_t·w_t·w_tᵀ, β_t = 2σ(W_β·x_t + b), w_t = u/‖u‖ with
u = SiLU(conv(W_up·W_down·x))_t, for each head of keys. With `forget` c_i - c_j is added, as in `forget.py`; the layer
of flash-linear-attention also divides this by √d.

The products of C tokens in a row are I - Wᵀ·T·(β∘W), T = (I + tril(β∘W·Wᵀ, -1))⁻¹ with rows w_t, so that only products
of blocks follow one another.

- PaTH Attention (arXiv:2505.16381), eqs 2 to 6; https://arxiv.org/abs/2505.16381
- https://github.com/fla-org/flash-linear-attention (`layers/path_attn.py`, whose kernels need a GPU, and
  `ops/path_attn/naive.py`, which was run beside it in double precision: outputs and gradients differ by 1e-14)

Not verified against the paper: initial values, and the scale of what is forgotten.

Shapes: K pack, B batch, T tokens, D width, H heads, G heads of keys and values, d head width, n blocks of C tokens.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ablate.kinds.mixers.attention_parts import Forget, ForgetSpec
from ablate.kinds.mixers.query_key_norm import QueryKeyNorm, QueryKeyNormSpec
from ablate.nn.kernels.softmax_attention import observed_attention
from ablate.nn.pack import ShortConvolution, State, join_heads, linear, short_convolution_cost, split_heads
from ablate.spec.annotations import ShortFor
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec, check_groups

_BLOCK = 64
"""C."""


class PathAttentionSpec(MixerSpec):
    """Softmax attention whose positions are products of maps that tokens choose (PaTH)."""

    source = "arXiv:2505.16381 eqs 2 to 6"
    complexity = "L²d"
    bidirectional_form = False
    uses_heads = True
    any_head_width = True

    kind: Literal["path_attention"] = "path_attention"
    kv_heads: int | None = Field(default=None, ge=1)
    """Heads of keys, values and w, each shared by a group of query heads; unless set, one for each query head."""
    rank: int | None = Field(default=32, ge=1)
    """Rank of the projection to w; `null`: one full matrix."""
    taps: int = Field(default=3, ge=0, le=64)
    """Kernel size of the convolution of w; 0: none, but SiLU stays."""
    query_key_norm: Annotated[QueryKeyNormSpec, ShortFor("kind")] = QueryKeyNormSpec()
    """Norm of queries and keys."""
    forget: Annotated[ForgetSpec, ShortFor("kind")] = ForgetSpec()
    """How fast each head forgets."""

    def check(self, context: LayerContext) -> None:
        groups = self.kv_heads or context.heads
        check_groups("kv_heads", groups, context.heads, "the key and value heads must divide the {} query heads")

    def build(self, context: LayerContext) -> PathAttention:
        return PathAttention(self, context)

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        w = "W_w" if self.rank is None else f"W_w, rank {self.rank}"
        return (
            (("query", "W_Q"), ("key", "W_K"), ("value", "W_V"), ("w", f"{w}, conv {self.taps}")),
            (("products", f"A = softmax(k·ΠH·q/√d{' ' + self.forget.label() if self.forget.present else ''})"),),
            (("output", "W_O"),),
        )

    def cache(self, context: LayerContext, length: int) -> int:
        """Keys, values, what fades, and the last inputs of the convolution."""
        d_kv = context.head_width * (self.kv_heads or context.heads)
        return length * (2 * d_kv + context.heads * self.forget.present) + max(0, self.taps - 1) * d_kv

    def cost(self, context: LayerContext, length: int) -> Cost:
        """Of full blocks. Kept: inputs and matrices of each block, of each pair of blocks, and the whole matrix."""
        wide, h, d, inner = context.width, context.heads, context.head_width, context.inner_width
        groups = self.kv_heads or h
        d_kv, pairs, rows = groups * d, length * (length + 1) // 2, length * h
        maps = linear_cost(length, wide, inner) + linear_cost(length, wide, d_kv) * 2 + linear_cost(length, inner, wide)
        if self.rank is None:
            maps += linear_cost(length, wide, d_kv)
        else:
            maps += linear_cost(length, wide, self.rank) + linear_cost(length, self.rank, d_kv)
        maps += linear_cost(length, wide, groups, bias=True)
        block = min(_BLOCK, length)
        blocks = -(-length // block)
        inside = rows * block * (4 * d + 2 * block)  # four products and two with T in each block
        apart = blocks * (blocks - 1) // 2 * h
        between = apart * block * d * (block + d)
        core = Cost(
            multiplications=inside + between + pairs * inner,
            additions=inside + between + pairs * inner + (pairs - length) * h,
            divisions=2 * pairs * h + rows,
            exponentiations=pairs * h + rows,
        )
        within = rows * (14 * d + 3 * block)
        copied = apart * d * (3 * block + d)  # twice the queries, once the keys, and the product of all maps
        matrix = (4 * h + 1) * length * length // 4  # the weights, and what is visible in bytes
        kept = length * (wide + inner + 2 * d_kv + (self.rank or 0)) + within + copied + matrix
        total = replace(maps + core, activations=kept)
        total += short_convolution_cost(length, d_kv, self.taps) + self.query_key_norm.cost(length, h, groups, d)
        return total + self.forget.cost(context, length, pairs)


class PathAttention(nn.Module):
    """The module of `PathAttentionSpec`."""

    def __init__(self, spec: PathAttentionSpec, context: LayerContext) -> None:
        super().__init__()
        wide, inner, d = context.width, context.inner_width, context.head_width
        self.heads, self.groups = context.heads, spec.kv_heads or context.heads
        d_kv = self.groups * d
        self.query, self.key, self.value = (linear(context, wide, size) for size in (inner, d_kv, d_kv))
        self.down = None if spec.rank is None else linear(context, wide, spec.rank)
        self.up = linear(context, spec.rank or wide, d_kv)
        self.convolution = ShortConvolution(context.pack, d_kv, spec.taps)
        self.strength = linear(context, wide, self.groups, bias=True)
        self.query_norm = QueryKeyNorm(spec.query_key_norm, context.pack, self.heads, d)
        self.key_norm = QueryKeyNorm(spec.query_key_norm, context.pack, self.groups, d)
        self.forget = Forget(spec.forget, context) if spec.forget.present else None
        self.output = linear(context, inner, wide, role="output")

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        u = self._directions(x)
        if padding is not None:
            u = u * padding.unsqueeze(-1)
        q, k, v, w, beta = self._heads(x, self.convolution(u))
        if padding is not None:
            beta = beta * padding[:, :, None, :, None]
        with torch.autocast(x.device.type, enabled=False):
            exact = torch.promote_types(x.dtype, torch.float32)
            keys, others, betas = (part.to(exact) for part in self._for_each_query(k, w, beta))
            logits = path_logits(q.to(exact), keys, others, betas) / math.sqrt(q.shape[-1])
            if self.forget is not None:
                fade = self.forget(x, padding).cumsum(-1)
                logits = logits + (fade.unsqueeze(-1) - fade.unsqueeze(-2))
        visible = torch.ones(x.shape[2], x.shape[2], dtype=torch.bool, device=x.device).tril()
        if padding is not None:
            own = torch.eye(x.shape[2], dtype=torch.bool, device=x.device)
            visible = visible & (padding[:, :, None, None, :] | own)
        logits = logits.masked_fill(~visible, -math.inf)
        weights = logits.softmax(-1)
        observed_attention(logits, weights)
        (v,) = self._for_each_query(v)
        mixed: Tensor = self.output(join_heads(weights.to(v.dtype) @ v))
        return mixed

    def step(self, x: Tensor, position: int, state: State) -> tuple[Tensor, State]:
        """The state: the last inputs of the convolution, values, keys times H of all tokens since, and what fades."""
        u, before = self.convolution.step(self._directions(x), state[0] if state else None)
        q, k, v, w, beta = self._heads(x, u)
        kept = state[1:]
        if kept:
            keys = kept[1] - beta * (kept[1] * w).sum(-1, keepdim=True) * w
            k, v = torch.cat([keys, k], -2), torch.cat([kept[0], v], -2)
        keys, values = self._for_each_query(k, v)
        logits = q @ keys.mT / math.sqrt(q.shape[-1])
        fades: State = ()
        if self.forget is not None:
            now = self.forget(x).unsqueeze(-1) + (kept[2][..., -1:, :] if kept else 0.0)
            fades = (torch.cat([kept[2], now], -2) if kept else now,)
            logits = logits + (now - fades[0].mT).to(logits.dtype)
        mixed: Tensor = self.output(join_heads(logits.softmax(-1) @ values))
        return mixed, (before, v, k, *fades)

    def _directions(self, x: Tensor) -> Tensor:
        """W_up·W_down·x, [K, B, T, G·d]."""
        made: Tensor = self.up(x if self.down is None else self.down(x))
        return made

    def _heads(self, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Queries [K, B, H, T, d], keys, values, w [K, B, G, T, d] and β [K, B, G, T, 1] of x and the convolved u."""
        q, k = self.query_norm(self.query(x)), self.key_norm(self.key(x))
        w = F.normalize(split_heads(u, self.groups), dim=-1)
        beta = 2 * self.strength(x).sigmoid().mT.unsqueeze(-1)
        return q, k, split_heads(self.value(x), self.groups), w, beta

    def _for_each_query(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """What heads of keys have, for the query heads that share it: [K, B, G, ...] to [K, B, H, ...]."""
        many = self.heads // self.groups
        return parts if many == 1 else tuple(part.repeat_interleave(many, 2) for part in parts)


def path_logits(q: Tensor, k: Tensor, w: Tensor, beta: Tensor, block: int = _BLOCK) -> Tensor:
    """k_jᵀ·H_{j+1}···H_i·q_i for j ≤ i, [..., T, T]; other entries are arbitrary.

    Args:
        q: Queries, [..., T, d].
        k: Keys, [..., T, d].
        w: Unit vectors, [..., T, d].
        beta: β, [..., T, 1].
        block: C.
    """
    length = q.shape[-2]
    block = min(block, length)
    blocks = -(-length // block)
    padded = (F.pad(x, (0, 0, 0, blocks * block - length)) for x in (q, k, w, w * beta))
    q, k, w, scaled = (x.reshape(*x.shape[:-2], blocks, block, x.shape[-1]) for x in padded)
    eye = torch.eye(block, dtype=q.dtype, device=q.device)
    right = torch.cat([(scaled @ k.mT).tril(-1), scaled], -1)
    made = torch.linalg.solve_triangular((scaled @ w.mT).tril(-1) + eye, right, upper=False, unitriangular=True)
    of_keys, of_all = made.split([block, made.shape[-1] - block], -1)
    read = (q @ w.mT).tril()
    inside = q @ k.mT - read @ of_keys
    q, k, whole = q - read @ of_all, k - of_keys.mT @ w, w.mT @ of_all
    # Blocks that are `apart`: the queries have passed all blocks between, and read the keys there.
    rows = [[inside[..., one, :, :]] for one in range(blocks)]
    for apart in range(1, blocks):
        q, left = q[..., 1:, :, :], blocks - apart
        found = q @ k[..., :left, :, :].mT
        for one in range(left):
            rows[one + apart].insert(0, found[..., one, :, :])
        q = q - q @ whole[..., :left, :, :]
    empty = torch.zeros_like(inside[..., 0, :, :])
    joined = [torch.cat([*row, *[empty] * (blocks - len(row))], -1) for row in rows]
    return torch.cat(joined, -2)[..., :length, :length]

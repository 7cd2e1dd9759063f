"""Native sparse attention (NSA): each query reads means of blocks, a few whole blocks, and a window, mixed by gates.

y_t = g_c·y_c + g_s·y_s + g_w·y_w for each head, g = σ(W_g·x_t). y_c attends to the mean keys and values of all blocks
of C tokens that have ended (0 if none has). y_s attends to the tokens of k blocks: the first, the query's own, the one
before it, and those to which the heads of a group give the largest mean weight in y_c. y_w attends to the last tokens.

- Native Sparse Attention (arXiv:2502.11089), eqs 5 to 12; https://arxiv.org/abs/2502.11089
- https://github.com/fla-org/flash-linear-attention (`layers/nsa.py`, `ops/nsa/naive.py`), from which this is: there and
  here a block is compressed to its mean, blocks do not overlap, and all three branches have the same keys and values.
  Its reference was run beside it in double precision: outputs differ by 4e-14, gradients by 1e-14 of their size

The paper compresses overlapping blocks by a trained map. Not verified against it: keys and values of each branch. In
long texts the logits of chosen blocks and of the window alone are computed (`ablate.nn.kernels.block_attention`), in
others all. The cost counts what is read.

Shapes: K pack, B batch, T tokens, D width, H heads, G heads of keys and values, d head width, n blocks of C tokens.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ablate.kinds.mixers.blocks import block_means
from ablate.nn.kernels.block_attention import attend as attend_in_blocks
from ablate.nn.kernels.block_attention import (
    attend_to_chosen_blocks,
    gathering_elements,
    gathering_is_cheaper,
    join_blocks,
    real_tokens,
    window,
    window_blocks,
)
from ablate.nn.kernels.softmax_attention import attend, observed_attention, observes_attention
from ablate.nn.pack import (
    ConvolutionSlot,
    State,
    build_positions,
    convolved_together,
    join_heads,
    linear,
    split_heads,
)
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec, check_groups


class NativeSparseAttentionSpec(MixerSpec):
    """Means of blocks, a few whole blocks and a window, mixed by gates (NSA)."""

    source = "arXiv:2502.11089 eqs 5 to 12"
    complexity = "L²d"
    bidirectional_form = False
    uses_heads = True
    any_head_width = True
    relative_positions = frozenset({"query_key"})

    kind: Literal["native_sparse_attention"] = "native_sparse_attention"
    kv_heads: int | None = Field(default=None, ge=1)
    """Heads of keys and values, each shared by a group of query heads that choose blocks together; unless set, one for
    each query head."""
    size: int = Field(default=64, ge=1)
    """C, tokens of a block."""
    active: int = Field(default=16, ge=3)
    """k, blocks that are read whole, the three fixed ones counted."""
    last: int = Field(default=512, ge=1)
    """Tokens of the window, the own one counted."""

    def check(self, context: LayerContext) -> None:
        groups = self.kv_heads or context.heads
        check_groups("kv_heads", groups, context.heads, "the key and value heads must divide the {} query heads")

    def build(self, context: LayerContext) -> NativeSparseAttention:
        return NativeSparseAttention(self, context)

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        return (
            (("query", "W_Q"), ("key", "W_K"), ("value", "W_V")),
            (
                ("means", f"of blocks of {self.size}"),
                ("blocks", f"{self.active} whole"),
                ("window", f"last {self.last}"),
            ),
            (("gate", "σ(W_g x) of each"),),
            (("output", "W_O"),),
        )

    def convolved_width(self, context: LayerContext) -> int:
        return context.head_width * (context.heads + 2 * (self.kv_heads or context.heads))

    def cache(self, context: LayerContext, length: int) -> int:
        """Keys and values."""
        return 2 * length * context.head_width * (self.kv_heads or context.heads)

    def pairs(self, length: int) -> tuple[int, int, int]:
        """Number of logits that the queries of one head read in each branch."""
        compressed = sum((place + 1) // self.size for place in range(length))
        whole = sum(
            place % self.size + 1 + self.size * min(self.active - 1, place // self.size) for place in range(length)
        )
        return compressed, whole, sum(min(place + 1, self.last) for place in range(length))

    def gathers(self, length: int) -> bool:
        """Whether the logits of chosen blocks and of the window alone are computed."""
        return gathering_is_cheaper(length, self.size, self.active)

    def cost(self, context: LayerContext, length: int) -> Cost:
        """Kept: the input, heads, weights of the means, the mask of both other branches, three results and gates."""
        wide, inner, h, d = context.width, context.inner_width, context.heads, context.head_width
        groups = self.kv_heads or h
        d_kv, rows, blocks = groups * d, length * h, -(-length // self.size)
        maps = linear_cost(length, wide, inner) + linear_cost(length, wide, d_kv) * 2 + linear_cost(length, wide, 3 * h)
        maps += linear_cost(length, inner, wide)
        pairs = sum(self.pairs(length)) * h
        core = Cost(
            multiplications=2 * pairs * d + 3 * rows * d,
            additions=2 * pairs * d + 2 * length * d_kv + 2 * rows * d,
            divisions=2 * pairs + 3 * rows + 2 * blocks * d_kv,
            exponentiations=pairs + 3 * rows,
        )
        heads = length * (wide + inner + 2 * d_kv) + (2 * rows * d if groups < h else 0)
        if self.gathers(length):
            size, before, _ = window_blocks(length, self.last - 1, causal=True)
            near = rows * size * (before + 1) + 2 * rows * d * before
            read = groups * gathering_elements(length, self.size, self.active, h // groups, d) + near
        else:
            read = 2 * h * length * length
        kept = heads + 2 * rows * blocks + read + 7 * rows * d + 3 * rows
        total = replace(maps + core, activations=kept)
        if context.positions is not None:
            total += context.positions.cost(context, length, key_heads=groups)
        return total


class NativeSparseAttention(nn.Module):
    """The module of `NativeSparseAttentionSpec`."""

    def __init__(self, spec: NativeSparseAttentionSpec, context: LayerContext) -> None:
        super().__init__()
        wide, inner = context.width, context.inner_width
        self.spec, self.heads, self.groups = spec, context.heads, spec.kv_heads or context.heads
        d_kv = self.groups * context.head_width
        self.query, self.key, self.value = (linear(context, wide, size) for size in (inner, d_kv, d_kv))
        self.gate = linear(context, wide, 3 * self.heads)
        self.positions = build_positions(context, "query_key")
        self.output = linear(context, inner, wide, role="output")
        self.convolution = ConvolutionSlot.of(context, "on_qkv", spec.convolved_width(context))

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        return self._mix(x, *self._heads(x, 0), 0, padding)

    def step(self, x: Tensor, position: int, state: State) -> tuple[Tensor, State]:
        """The state: keys and values."""
        q, k, v = self._heads(x, position)
        if state:
            k, v = torch.cat([state[0], k], -2), torch.cat([state[1], v], -2)
        return self._mix(x, q, k, v, position), (k, v)

    def _heads(self, x: Tensor, first: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [K, B, H, T, d], keys and values [K, B, G, T, d], from position `first` on."""
        queries, keys, values = convolved_together(self.convolution, self.query(x), self.key(x), self.value(x))
        q, k = split_heads(queries, self.heads), split_heads(keys, self.groups)
        if self.positions is not None:
            q, k = self.positions(q, first), self.positions(k, first)
        return q, k, split_heads(values, self.groups)

    def _mix(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, first: int, padding: Tensor | None = None) -> Tensor:
        """The queries from position `first` on, of the inputs x [K, B, T, D], to [K, B, T, D]."""
        place = torch.arange(first, first + q.shape[-2], device=x.device).unsqueeze(-1)
        compressed, chosen = self._compressed(q, k, v, place, padding)
        long = q.shape[-2] > 1 and self.spec.gathers(k.shape[-2]) and not observes_attention()
        way = self._read_chosen if long else self._read_masked
        y = torch.stack([compressed, *way(q, k, v, chosen, place, padding)], -1)
        gates = self.gate(x).sigmoid().view(*x.shape[:3], self.heads, 3).transpose(2, 3)
        mixed: Tensor = self.output(join_heads((y @ gates.unsqueeze(-1)).squeeze(-1)))
        return mixed

    def _read_masked(
        self, q: Tensor, k: Tensor, v: Tensor, chosen: Tensor, place: Tensor, padding: Tensor | None
    ) -> list[Tensor]:
        """What queries [K, B, H, T, d] at `place` read of whole blocks and of the window, by all their logits."""
        token = torch.arange(k.shape[-2], device=q.device)
        real = token <= place
        if padding is not None:
            real = real & (padding[:, :, None, None, :] | (token == place))
        whole, k, v = (self._for_each_query(x) for x in (chosen, k, v))
        whole = whole.repeat_interleave(self.spec.size, -1)[..., : k.shape[-2]]
        masks = whole & real, (real & (place - token < self.spec.last)).expand(*q.shape[:3], -1, -1)
        queries, keys, values = (part.flatten(0, 1) for part in (q, k, v))
        return [attend(queries, keys, values, mask.flatten(0, 1)).view(q.shape) for mask in masks]

    def _read_chosen(
        self, q: Tensor, k: Tensor, v: Tensor, chosen: Tensor, place: Tensor, padding: Tensor | None
    ) -> list[Tensor]:
        """The same for all queries of a text, by the logits of these blocks and of this window alone."""
        spec, length = self.spec, k.shape[-2]
        queries, keys, values, choice = (part.flatten(0, 1) for part in (q, k, v, chosen))
        grouped = torch.unflatten(queries, 1, (self.groups, -1))
        real = None if padding is None else padding.flatten(0, 1)
        scale = q.shape[-1] ** -0.5
        whole = attend_to_chosen_blocks(grouped, keys, values, choice, spec.size, spec.active, scale, real)
        each_key, each_value = (self._for_each_query(x).flatten(0, 1) for x in (k, v))
        real_keys = real_tokens(q[:, :, 0], padding)
        blocked, seen, _ = window(queries, each_key, each_value, real_keys, spec.last - 1, causal=True)
        return [whole.reshape(q.shape), join_blocks(attend_in_blocks(blocked, [seen]), length).view(q.shape)]

    def _for_each_query(self, x: Tensor) -> Tensor:
        """What each head of keys has, [K, B, G, ...], for the query heads that share it, [K, B, H, ...]."""
        return x if self.groups == self.heads else x.repeat_interleave(self.heads // self.groups, 2)

    def _compressed(
        self, q: Tensor, k: Tensor, v: Tensor, place: Tensor, padding: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """What queries [K, B, H, T, d] at `place` read of means, and which blocks they read whole, [K, B, G, T, n]."""
        spec, many = self.spec, self.heads // self.groups
        (keys, count), (values, _) = (block_means(part, spec.size, padding) for part in (k, v))
        block = torch.arange(keys.shape[-2], device=q.device)
        ended = ((block + 1) * spec.size - 1 <= place) & (count > 0).mT  # [K or 1, B or 1, 1, T, n]
        grouped = q.reshape(*q.shape[:2], self.groups, many, *q.shape[3:])
        logits = (grouped @ keys.to(q.dtype).mT.unsqueeze(3)) / math.sqrt(q.shape[-1])
        hidden = ~ended.unsqueeze(3)
        none = hidden.all(-1, keepdim=True)
        logits = logits.masked_fill(hidden & ~none, -math.inf)
        weights = logits.softmax(-1).masked_fill(none, 0.0)
        observed_attention(logits, weights)
        y = (weights @ values.to(weights.dtype).unsqueeze(3)).flatten(2, 3).to(q.dtype)
        own = place // spec.size
        fixed = (block == own) | (block == own - 1) | (block == 0)
        with torch.no_grad():
            liked = weights.mean(3).masked_fill(~ended, -math.inf).masked_fill(fixed, math.inf)
            best = liked.topk(min(spec.active, liked.shape[-1]), -1).indices
            chosen = torch.zeros_like(liked, dtype=torch.bool).scatter(-1, best, True) & (fixed | ended)
        return y, chosen & (block <= own)

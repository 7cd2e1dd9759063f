"""The module of the kind `attention`; `ablate/kinds/mixers/attention.py` has its equations and its sources.

Shapes: K pack, B batch, T tokens, S tokens of what is attended to, D width, H heads, d_h = D/H head width.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.nn.kernels import linear_attention
from ablate.nn.kernels.softmax_attention import attend
from ablate.nn.pack import (
    HeadGain,
    LayerNorm,
    Linear,
    RMSNorm,
    State,
    build_positions,
    dropout,
    join_heads,
    linear,
    split_heads,
    zeros,
)
from ablate.spec.layer import LayerContext

if TYPE_CHECKING:
    from ablate.kinds.mixers.attention import AttentionSpec

_NORM_EPS = 1e-6
"""ε of the query and key norms."""


class Attention(nn.Module):
    """The module of `AttentionSpec`."""

    def __init__(self, spec: AttentionSpec, context: LayerContext) -> None:
        super().__init__()
        d, inner, pack = context.width, context.inner_width, context.pack
        self.spec = spec
        self.heads = context.heads
        self.kv_heads = spec.kv_heads or context.heads
        self.causal = context.causal
        self.window = context.window
        self.cross = context.cross
        self.positions = build_positions(context, "query_key")
        self.bias = build_positions(context, "logits")
        self.factor = 1.0 if context.positions is None else context.positions.factor_of_logits
        d_h = context.head_width
        d_kv = d_h * self.kv_heads
        zero = (spec.query_init or spec.shaping.query_start) == "zero"
        start = zeros if zero else context.initial("hidden", d, inner)
        self.query = Linear(pack, d, inner, bias=spec.query_key_bias, initial=start)
        self.key = linear(context, d, d_kv, bias=spec.query_key_bias)
        self.value = spec.value.build(context, d, d_kv, "hidden")
        self.output = spec.output.build(context, inner, d, "output")
        norm = {"rms": RMSNorm, "layer": LayerNorm}.get(spec.query_key_norm)
        self.query_norm = norm(pack, d_h, _NORM_EPS) if norm else nn.Identity()
        self.key_norm = norm(pack, d_h, _NORM_EPS) if norm else nn.Identity()
        self.gains = nn.ModuleDict(
            {
                name: HeadGain(pack, self.heads, gain.initial(context.depth), trainable=gain.trainable)
                for name, gain in spec.shaping.gains().items()
            }
        )

    def forward(
        self,
        x: Tensor,
        padding: Tensor | None = None,
        memory: Tensor | None = None,
        memory_padding: Tensor | None = None,
    ) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real.

        With `memory` [K, B, S, D] keys and values are read from it (cross-attention), and `memory_padding` [K, B, S]
        says which of its tokens are real.
        """
        seen = padding if memory is None else memory_padding
        q, k, v = self._heads(x, x if memory is None else memory)
        k, v = self._for_each_query(k), self._for_each_query(v)
        if self.spec.dropout > 0 and self.training:
            # Dropout falls on the shaped matrix, so it has to be made.
            y = dropout(self._matrix(q, k, seen), self.spec.dropout, self.training) @ v
        else:
            y = self._shape(self._mix(q, k, v, seen), v, seen)
        mixed: Tensor = self.output(join_heads(y))
        return mixed

    def step(self, x: Tensor, place: int, state: State) -> tuple[Tensor, State]:
        """See `Stepping.step`: keys and values are kept; with `kv_first`, the state Σ kᵀ·v of each head."""
        q, k, v = self._heads(x, x, place)
        scale = {"none": 1.0, "head_width": q.shape[-1] ** -0.5, "length": (place + 1) ** -0.5}[self.spec.scale]
        scale *= self.factor
        if self.spec.matmul_order == "kv_first":
            values = v = self._for_each_query(v)
            y, kept = linear_attention.recur(q * scale, self._for_each_query(k), v, state[0] if state else None)
            state = (kept,)
        else:
            state = tuple(torch.cat([*before, now], -2) for before, now in zip(_apart(state), (k, v), strict=True))
            if self.window is not None:
                state = tuple(kept[..., -self.window :, :] for kept in state)
            keys, values = (self._for_each_query(kept) for kept in state)
            y, v = self._read(q, keys, values, scale, place), values[..., -1:, :]
        if self.spec.shaping.kind != "none":
            y = self.gains["alpha"](v) + self.gains["beta"](y)
        if self.spec.shaping.kind == "shaped":
            y = y - self.gains["gamma"](values.mean(-2, keepdim=True))
        return self.output(join_heads(y)), state

    def _read(self, q: Tensor, keys: Tensor, values: Tensor, scale: float, place: int) -> Tensor:
        """Row `place` of A·V: q [K, B, H, 1, d_h], the last keys and values up to there [K, B, H, T, d_h]."""
        if not self.spec.softmax:
            return (q * scale @ keys.mT) @ values
        bias = None
        if self.bias is not None:
            bias = self.bias(q, place + 1, place)[..., -keys.shape[-2] :]
            bias = bias.expand(*q.shape[:2], *bias.shape[-3:]).flatten(0, 1)
        y = F.scaled_dot_product_attention(
            q.flatten(0, 1), keys.flatten(0, 1), values.flatten(0, 1), attn_mask=bias, scale=scale
        )
        return y.view(q.shape)

    def matrix(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """The attention matrix after shaping, [K, B, H, T, T], from x [K, B, T, D]."""
        q, k, _ = self._heads(x, x)
        return self._matrix(q, self._for_each_query(k), padding)

    def _heads(self, x: Tensor, source: Tensor, first: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [K, B, H, T, d_h] of x, keys and values [K, B, kv_heads, S, d_h] of source, from place `first` on."""
        q = self.query_norm(split_heads(self.query(x), self.heads))
        k = self.key_norm(split_heads(self.key(source), self.kv_heads))
        v = split_heads(self.value(source), self.kv_heads)
        if self.positions is not None:
            q, k = self.positions(q, first), self.positions(k, first)
        return q, k, v

    def _for_each_query(self, kv: Tensor) -> Tensor:
        """Keys or values with each head as often as queries share it, [K, B, H, S, d_h]."""
        return kv if self.kv_heads == self.heads else kv.repeat_interleave(self.heads // self.kv_heads, 2)

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None) -> Tensor:
        """A·V before shaping, without making A where that can be avoided."""
        if not self.spec.softmax:
            if padding is not None:
                k = k * padding[:, :, None, :, None]
            q = q * self._scale(q, k, padding)
            if self.spec.matmul_order == "kv_first":
                return (linear_attention.causal if self.causal else linear_attention.bidirectional)(q, k, v)
            return self._hidden(q @ k.mT) @ v
        scale = None
        if self.spec.scale != "head_width" or self.factor != 1.0:
            q, scale = q * self._scale(q, k, padding), 1.0
        mask = self._mask(q, k, padding)
        # K is folded into the batch: the fast kernels know four axes.
        y = attend(
            q.flatten(0, 1),
            k.flatten(0, 1),
            v.flatten(0, 1),
            None if mask is None else mask.flatten(0, 1),
            is_causal=self.causal and mask is None,
            scale=scale,
        )
        return y.view(*q.shape[:-1], v.shape[-1])

    def _mask(self, q: Tensor, k: Tensor, padding: Tensor | None) -> Tensor | None:
        """What SDPA adds to the logits (float) or lets through (bool), [K, B, H or 1, T, S]; None if nothing."""
        if self.bias is None:
            return None if padding is None and self.window is None else self._visible(q, k, padding)
        bias: Tensor = self.bias(q, k.shape[-2])
        return bias.masked_fill(~self._visible(q, k, padding), -math.inf)

    def _hidden(self, a: Tensor) -> Tensor:
        """[..., T, S] with 0, or False, where the future or what lies outside the window stands."""
        if self.window is not None:
            a = a.triu(1 - self.window)
        if self.causal:
            return a.tril()
        return a if self.window is None else a.tril(self.window - 1)

    def _shape(self, mixed: Tensor, v: Tensor, padding: Tensor | None) -> Tensor:
        """α·v + β·A·v - γ·C·v."""
        kind = self.spec.shaping.kind
        if kind == "none":
            return mixed
        y: Tensor = self.gains["alpha"](v) + self.gains["beta"](mixed)
        return y if kind == "value_skipinit" else y - self.gains["gamma"](self._centre(v, padding))

    def _centre(self, v: Tensor, padding: Tensor | None) -> Tensor:
        """C·v: the mean over the visible tokens."""
        length = v.shape[-2]
        if padding is None:
            if self.causal:
                return v.cumsum(-2) / torch.arange(1, length + 1, device=v.device, dtype=v.dtype)[:, None]
            return v.mean(-2, keepdim=True).expand_as(v)
        visible = self._visible(v, v, padding).to(v.dtype)
        return (visible / visible.sum(-1, keepdim=True)) @ v

    def _visible(self, q: Tensor, k: Tensor, padding: Tensor | None) -> Tensor:
        """[K, B, 1, T, S], True where a row may look. A token always sees itself, so that no row is empty."""
        rows, columns = q.shape[-2], k.shape[-2]
        if padding is None:
            visible = torch.ones(*k.shape[:2], 1, rows, columns, dtype=torch.bool, device=k.device)
        else:
            visible = padding[:, :, None, None, :].expand(-1, -1, -1, rows, -1)
            if not self.cross:
                visible = visible | torch.eye(rows, dtype=torch.bool, device=padding.device)
        return self._hidden(visible)

    def _scale(self, q: Tensor, k: Tensor, padding: Tensor | None) -> Tensor | float:
        """Factor of the logits, for each row where it depends on the length."""
        if self.spec.scale == "none":
            return self.factor
        if self.spec.scale == "head_width":
            return self.factor / math.sqrt(q.shape[-1])
        return self._length_scale(q, k, padding) * self.factor

    def _length_scale(self, q: Tensor, k: Tensor, padding: Tensor | None) -> Tensor | float:
        """1/√L, causal 1/√t."""
        if padding is not None:
            seen = padding.cumsum(-1) if self.causal else padding.sum(-1, keepdim=True)
            return seen.clamp(min=1).to(q.dtype).rsqrt()[:, :, None, :, None]
        if self.causal:
            return torch.arange(1, q.shape[-2] + 1, device=q.device, dtype=q.dtype).rsqrt()[:, None]
        return 1.0 / math.sqrt(k.shape[-2])

    def _matrix(self, q: Tensor, k: Tensor, padding: Tensor | None) -> Tensor:
        """A after shaping, made in full."""
        visible = self._visible(q, k, padding)
        logits = (q * self._scale(q, k, padding)) @ k.mT
        if self.bias is not None:
            logits = logits + self.bias(q, k.shape[-2])
        if self.spec.softmax:
            a = logits.masked_fill(~visible, -math.inf).softmax(-1)
        else:
            a = logits * (visible if padding is None else visible & padding[:, :, None, None, :])
        kind = self.spec.shaping.kind
        if kind == "none":
            return a
        eye = torch.eye(q.shape[-2], device=q.device, dtype=q.dtype)
        shaped: Tensor = self.gains["alpha"](eye.expand_as(a)) + self.gains["beta"](a)
        if kind == "shaped":
            centre = visible.to(q.dtype) / visible.sum(-1, keepdim=True)
            shaped = shaped - self.gains["gamma"](centre.expand_as(a))
        return shaped


def _apart(state: State) -> tuple[State, State]:
    """What is kept of keys and of values; nothing of either at first."""
    return (state[:1], state[1:])

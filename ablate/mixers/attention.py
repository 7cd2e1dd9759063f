"""Dot-product attention with every part of it a switch.

A = softmax(Q·Kᵀ·scale + M), or A = Q·Kᵀ·scale ∘ M without softmax; then shaping, A·V and the output projection.

- Attention Is All You Need (arXiv:1706.03762), eq. 1; https://arxiv.org/abs/1706.03762
- Simplifying Transformer Blocks (arXiv:2311.01906), eqs 2 and 4 to 6; https://arxiv.org/abs/2311.01906
- SimpleTRON (arXiv:2111.15588): Y = (1/√L)·Q·(Kᵀ·V); https://arxiv.org/abs/2111.15588

Shapes: K pack, B batch, T tokens, D width, H heads, d_h = D/H head width.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, ValidationInfo, field_validator, model_validator
from torch import Tensor, nn

from ablate.kernels import linear_attention
from ablate.kernels.relative_positions import alibi_bias, rotate
from ablate.pack import (
    DenseSpec,
    HeadGain,
    IdentitySpec,
    LayerNorm,
    Linear,
    Projection,
    RMSNorm,
    State,
    dropout,
    normal,
    zeros,
)
from ablate.spec.base import ShortFor, Spec, refusal
from ablate.spec.block import Gain, GainSpec
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.mixer import MixerContext, MixerSpec

_NORM_EPS = 1e-6
"""ε of the query and key norms."""

_STARTS: dict[str, dict[str, float]] = {
    "none": {},
    "value_skipinit": {"alpha": 1.0, "beta": 0.0},
    "shaped": {"alpha": 1.0, "beta": 1.0, "gamma": 1.0},
}
"""Kind of shaping to its gains and their values at the start of training."""


class ShapingSpec(Spec):
    """What is added to and taken from the attention matrix; one gain of each sort for each head.

    `value_skipinit`: A ← α·I + β·A (eq. 4), α = 1 and β = 0 at the start.
    `shaped`: A ← α·I + β·A - γ·C (eq. 5), all 1 at the start, and W_Q = 0 so that A = C there: C is the value that A
    takes when all logits are 0 (uniform over the visible tokens), and the map is exactly the identity.
    """

    kind: Literal["none", "value_skipinit", "shaped"] = "none"
    """Which shaping."""
    alpha: Gain | None = None
    """Gain of the identity; trainable from 1 unless set."""
    beta: Gain | None = None
    """Gain of the attention matrix; trainable, from 0 (`value_skipinit`) or 1 (`shaped`) unless set."""
    gamma: Gain | None = None
    """Gain of the centring matrix C (`shaped` only); trainable from 1 unless set."""

    @field_validator("alpha", "beta", "gamma")
    @classmethod
    def _default_is_none(cls, gain: GainSpec | None, info: ValidationInfo) -> GainSpec | None:
        # Written out at its default, a gain is the same as left out.
        start = _STARTS.get(info.data.get("kind", ""), {}).get(info.field_name or "")
        return None if start is not None and gain == _trainable_from(start) else gain

    @model_validator(mode="after")
    def _gains_fit(self) -> Self:
        for name in ("alpha", "beta", "gamma"):
            gain = getattr(self, name)
            if gain is not None and name not in _STARTS[self.kind]:
                raise refusal((name,), gain, f"shaping `{self.kind}` has no {name}", f"Leave `{name}` out.")
        return self

    def gains(self) -> dict[str, GainSpec]:
        """The gains of this shaping by name."""
        return {name: getattr(self, name) or _trainable_from(start) for name, start in _STARTS[self.kind].items()}


def _trainable_from(start: float) -> GainSpec:
    return GainSpec(init=start, trainable=True)


class AttentionSpec(MixerSpec):
    """Dot-product attention: softmax, order of products, scale, projections and shaping are settings."""

    source = "arXiv:1706.03762 eq. 1; arXiv:2311.01906 eqs 2, 4-6; arXiv:2111.15588"
    complexity = "L²d (Ld²/H without softmax and with `kv_first`)"
    uses_heads = True
    relative_positions = frozenset({"rotary", "alibi"})
    cross_form = True

    kind: Literal["attention"] = "attention"
    softmax: bool = True
    """Whether the rows of Q·Kᵀ go through softmax."""
    matmul_order: Literal["qk_first", "kv_first"] = "qk_first"
    """(Q·Kᵀ)·V or Q·(Kᵀ·V); the second needs no softmax between the products."""
    scale: Literal["head_width", "length", "none"] = "head_width"
    """`head_width`: 1/√d_h; `length`: 1/√L, causal 1/√t, padding not counted; `none`: 1."""
    query_key_bias: bool = False
    """Whether the query and key maps have biases."""
    query_key_norm: Literal["none", "rms", "layer"] = "none"
    """Norm of queries and keys over each head's width, with one trainable gain for all heads (arXiv:2302.05442)."""
    kv_heads: int | None = Field(default=None, ge=1)
    """Heads of keys and values, each shared by a group of query heads (grouped queries, arXiv:2305.13245; 1:
    multi-query, arXiv:1911.02150); unless set, one for each query head."""
    value: Projection = DenseSpec()
    """W_V."""
    output: Projection = DenseSpec()
    """W_P, after the heads are joined."""
    shaping: Annotated[ShapingSpec, ShortFor("kind")] = ShapingSpec()
    """What is added to and taken from the attention matrix."""
    query_init: Literal["normal", "zero"] | None = None
    """How W_Q starts; unless set, `zero` for shaping `shaped` (eq. 5) and `normal` elsewhere."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the attention matrix, after shaping."""

    @field_validator("query_init")
    @classmethod
    def _default_start_is_none(cls, start: str | None, info: ValidationInfo) -> str | None:
        # Written out at its default, it is the same as left out.
        shaping = info.data.get("shaping")
        return None if isinstance(shaping, ShapingSpec) and start == _query_start(shaping) else start

    @model_validator(mode="after")
    def _is_attention(self) -> Self:
        if self.softmax and self.matmul_order == "kv_first":
            raise refusal(
                ("matmul_order",),
                self.matmul_order,
                "softmax stands between Q·Kᵀ and V, so the products cannot be taken in the order Q·(Kᵀ·V)",
                "Set `softmax: false`, or `matmul_order: qk_first`.",
            )
        if not self.softmax and self.shaping.kind == "shaped":
            raise refusal(
                ("shaping",),
                self.shaping.kind,
                "the centring matrix of shaped attention is what softmax gives for equal logits; there is no softmax",
                "Set `softmax: true`, or `shaping: value_skipinit`.",
            )
        if self.matmul_order == "kv_first" and self.dropout > 0:
            raise refusal(
                ("dropout",),
                self.dropout,
                "dropout falls on the attention matrix, which Q·(Kᵀ·V) never makes",
                "Set `dropout: 0`, or `matmul_order: qk_first`.",
            )
        return self

    def check(self, context: MixerContext) -> None:
        """See `MixerSpec.check`."""
        groups = self.kv_heads or context.heads
        if context.heads % groups:
            near = max(n for n in range(1, groups + 1) if context.heads % n == 0)
            raise refusal(
                ("kv_heads",),
                groups,
                f"the heads of keys and values must divide the {context.heads} query heads",
                f"Set `kv_heads: {near}`.",
            )
        if groups != context.heads and isinstance(self.value, IdentitySpec):
            raise refusal(
                ("value",),
                "identity",
                f"values without a map keep the width {context.width}, and {groups} heads of values are narrower",
                "Leave `kv_heads` out, or set `value: dense`.",
            )
        if context.cross and self.shaping.kind != "none":
            raise refusal(
                ("shaping",),
                self.shaping.kind,
                "shaping adds the identity, and attention from one sequence to another has none",
                "Leave `shaping` out.",
            )
        if context.positions == "rotary" and (context.width // context.heads) % 2:
            raise refusal(
                (),
                context.width // context.heads,
                "rotary positions turn pairs, so the width of a head must be even",
                "Change `model.width` or `model.heads`, or `model.positions`.",
            )
        if context.positions == "alibi" and not self.softmax:
            raise refusal(
                ("softmax",),
                False,
                "ALiBi is a bias of logits, and without softmax there are none",
                "Set `softmax: true`, or other `model.positions`.",
            )

    def build(self, context: MixerContext) -> Attention:
        """See `MixerSpec.build`."""
        return Attention(self, context)

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """See `MixerSpec.parts`."""
        bias = " + b" if self.query_key_bias else ""
        maps = [("query", f"W_Q{bias}"), ("key", f"W_K{bias}")]
        value, output = self.value.label("W_V"), self.output.label("W_P")
        scale = {"head_width": "/√d_h", "length": "/√L", "none": ""}[self.scale]
        products = f"softmax(QKᵀ{scale})" if self.softmax else f"QKᵀ{scale}"
        shaping = {"none": "", "value_skipinit": "αI + βA", "shaped": "αI + βA - γC"}[self.shaping.kind]
        norm = {"none": "", "rms": "RMSNorm of Q, K", "layer": "LayerNorm of Q, K"}[self.query_key_norm]
        rows = [
            (*maps, *([("value", value)] if value else [])),
            (("norm", norm),) if norm else (),
            (("products", f"Q(KᵀV){scale}" if self.matmul_order == "kv_first" else f"A = {products}"),),
            (("shaping", shaping),) if shaping else (),
            (("output", output),) if output else (),
        ]
        return tuple(row for row in rows if row)

    def cache(self, context: MixerContext, length: int) -> int:
        """See `MixerSpec.cache`: keys and values, or the state Σ kᵀ·v of each head; and the sum of values for C."""
        d_h = context.width // context.heads
        if self.matmul_order == "kv_first":
            return context.heads * d_h * d_h
        centre = context.width if self.shaping.kind == "shaped" else 0
        return 2 * length * d_h * (self.kv_heads or context.heads) + centre

    def cost(self, context: MixerContext, length: int) -> Cost:
        """See `MixerSpec.cost`; with softmax and dense maps this is Table 3 of arXiv:2308.07661."""
        d, h = context.width, context.heads
        d_h = d // h
        d_kv = d_h * (self.kv_heads or h)
        bias = self.query_key_bias
        maps = linear_cost(length, d, d, bias=bias) + linear_cost(length, d, d_kv, bias=bias)
        maps += self.value.cost(length, d, d_kv) + self.output.cost(length, d, d)
        maps = replace(maps, activations=self._kept(context, length)) + self._norm_cost(length, d, d_kv, d_h)
        pairs = length * (length + 1) // 2 if context.causal else length * length
        if self.matmul_order == "kv_first":
            # Causal: a state d_h x d_h for each head gets one product a token, and each token reads it.
            core = Cost(
                multiplications=2 * length * d * d_h,
                additions=length * d * d_h + length * d * (d_h - 1),
                divisions=0 if self.scale == "none" else length * d,
            )
        else:
            products = Cost(
                multiplications=2 * pairs * d,
                additions=pairs * (d - h) + (pairs - length) * d,
            )
            softmax = Cost(additions=(pairs - length) * h, divisions=pairs * h, exponentiations=pairs * h)
            scale = Cost(divisions=0 if self.scale == "none" else pairs * h)
            core = products + scale + (softmax if self.softmax else Cost())
        gains = sum(h for gain in self.shaping.gains().values() if gain.trainable)
        terms = len(self.shaping.gains())
        shaping = Cost(
            parameters=gains,
            multiplications=terms * length * d,
            additions=max(0, terms - 1) * length * d + (length * d if "gamma" in self.shaping.gains() else 0),
            divisions=length * d if "gamma" in self.shaping.gains() else 0,
        )
        return maps + core + shaping + _position_cost(context, length, d_kv, pairs)

    def _kept(self, context: MixerContext, length: int) -> int:
        """Scalars that autograd keeps, each once: one input for all maps, heads, products, what shaping adds up."""
        elements, d_h = length * context.width, context.width // context.heads
        square = context.heads * length * length
        values = 0 if isinstance(self.value, IdentitySpec) else 1  # else they are a view of the input
        mapped = 0 if isinstance(self.output, IdentitySpec) else 1
        heads = (3 + values) * elements  # the input, queries, keys and values
        shaped = self.shaping.kind != "none"
        if self.dropout > 0:
            # A is made: kept are the noise, what it leaves of A, A itself by softmax and by gains, and a mask of bytes.
            return heads + (2 + (self.softmax or shaped)) * square + length * length // 4 + mapped * elements
        if self.softmax:
            bias = square if context.positions == "alibi" else 0
            result = elements + length * context.heads  # with the logarithm of each row's sum
            centre = elements if self.shaping.kind == "shaped" and context.causal else 0
            return heads + bias + result + centre + (mapped * elements if shaped else 0)
        results = (mapped + shaped) * elements
        if self.matmul_order == "qk_first":
            return heads + square + results
        if not context.causal:
            return heads + context.heads * d_h * d_h + results
        return elements + context.heads * linear_attention.kept(length, d_h, d_h) + results

    def _norm_cost(self, length: int, d: int, d_kv: int, d_h: int) -> Cost:
        if self.query_key_norm == "none":
            return Cost()
        elements = length * (d + d_kv)
        return Cost(
            parameters=2 * d_h * (2 if self.query_key_norm == "layer" else 1),
            multiplications=2 * elements,
            additions=elements,
            divisions=elements,
            activations=2 * elements,  # what goes in, and what is multiplied by the gain
        )


def _position_cost(context: MixerContext, length: int, d_kv: int, pairs: int) -> Cost:
    """Rotary: four products and two sums for each pair of queries and keys; ALiBi: a sum for each logit."""
    if context.positions == "rotary":
        elements = length * (context.width + d_kv)
        return Cost(multiplications=2 * elements, additions=elements)
    return Cost(additions=context.heads * pairs if context.positions == "alibi" else 0)


def _apart(state: State) -> tuple[State, State]:
    """What is kept of keys and of values; nothing of either at first."""
    return (state[:1], state[1:])


def _query_start(shaping: ShapingSpec) -> str:
    return "zero" if shaping.kind == "shaped" else "normal"


class Attention(nn.Module):
    """The module of `AttentionSpec`."""

    def __init__(self, spec: AttentionSpec, context: MixerContext) -> None:
        super().__init__()
        d, pack = context.width, context.pack
        self.spec = spec
        self.heads = context.heads
        self.kv_heads = spec.kv_heads or context.heads
        self.causal = context.causal
        self.positions = context.positions
        self.cross = context.cross
        d_h = d // self.heads
        d_kv = d_h * self.kv_heads
        start = normal(context.init_std)
        query_init = spec.query_init or _query_start(spec.shaping)
        self.query = Linear(pack, d, d, bias=spec.query_key_bias, initial=zeros if query_init == "zero" else start)
        self.key = Linear(pack, d, d_kv, bias=spec.query_key_bias, initial=start)
        self.value = spec.value.build(pack, d, d_kv, context.depth, context.init_std)
        self.output = spec.output.build(pack, d, d, context.depth, context.init_std)
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
        y = y.transpose(2, 3).flatten(3)  # [K, B, T, D]
        mixed: Tensor = self.output(y)
        return mixed

    def step(self, x: Tensor, place: int, state: State) -> tuple[Tensor, State]:
        """See `Stepping.step`: keys and values are kept; with `kv_first`, the state Σ kᵀ·v of each head."""
        q, k, v = self._heads(x, x, place)
        scale = {"none": 1.0, "head_width": q.shape[-1] ** -0.5, "length": (place + 1) ** -0.5}[self.spec.scale]
        if self.spec.matmul_order == "kv_first":
            values = v = self._for_each_query(v)
            y, kept = linear_attention.recur(q * scale, self._for_each_query(k), v, state[0] if state else None)
            state = (kept,)
        else:
            state = tuple(torch.cat([*before, now], -2) for before, now in zip(_apart(state), (k, v), strict=True))
            keys, values = (self._for_each_query(kept) for kept in state)
            y, v = self._read(q, keys, values, scale), values[..., -1:, :]
        if self.spec.shaping.kind != "none":
            y = self.gains["alpha"](v) + self.gains["beta"](y)
        if self.spec.shaping.kind == "shaped":
            y = y - self.gains["gamma"](values.mean(-2, keepdim=True))
        return self.output(y.transpose(2, 3).flatten(3)), state

    def _read(self, q: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """The last row of A·V: q [K, B, H, 1, d_h], keys and values [K, B, H, T, d_h]."""
        if not self.spec.softmax:
            return (q * scale @ keys.mT) @ values
        length = keys.shape[-2]
        bias = alibi_bias(self.heads, length, q.device, q.dtype, length - 1) if self.positions == "alibi" else None
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
        q = self.query_norm(self._split(self.query(x), self.heads))
        k = self.key_norm(self._split(self.key(source), self.kv_heads))
        v = self._split(self.value(source), self.kv_heads)
        if self.positions == "rotary":
            q, k = rotate(q, first), rotate(k, first)
        return q, k, v

    def _for_each_query(self, kv: Tensor) -> Tensor:
        """Keys or values with each head as often as queries share it, [K, B, H, S, d_h]."""
        return kv if self.kv_heads == self.heads else kv.repeat_interleave(self.heads // self.kv_heads, 2)

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(*x.shape[:-1], heads, -1).transpose(2, 3)  # [K, B, heads, T, d_h]

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None) -> Tensor:
        """A·V before shaping, without making A where that can be avoided."""
        if not self.spec.softmax:
            if padding is not None:
                k = k * padding[:, :, None, :, None]
            q = q * self._scale(q, k, padding)
            if self.spec.matmul_order == "kv_first":
                return (linear_attention.causal if self.causal else linear_attention.bidirectional)(q, k, v)
            a = q @ k.mT
            return (a.tril() if self.causal else a) @ v
        scale = None
        if self.spec.scale != "head_width":
            q, scale = q * self._scale(q, k, padding), 1.0
        mask = self._mask(q, k, padding)
        # K is folded into the batch: the fast kernels know four axes.
        y = F.scaled_dot_product_attention(
            q.flatten(0, 1),
            k.flatten(0, 1),
            v.flatten(0, 1),
            attn_mask=None if mask is None else mask.flatten(0, 1),
            is_causal=self.causal and mask is None,
            scale=scale,
        )
        return y.view(*q.shape[:-1], v.shape[-1])

    def _mask(self, q: Tensor, k: Tensor, padding: Tensor | None) -> Tensor | None:
        """What SDPA adds to the logits (float) or lets through (bool), [K, B, H or 1, T, S]; None if nothing."""
        if self.positions != "alibi":
            return None if padding is None else self._visible(q, k, padding)
        bias = alibi_bias(self.heads, q.shape[-2], q.device, q.dtype)
        return bias.masked_fill(~self._visible(q, k, padding), -math.inf)

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
        return visible.tril() if self.causal else visible

    def _scale(self, q: Tensor, k: Tensor, padding: Tensor | None) -> Tensor | float:
        """Factor of the logits, for each row where it depends on the length."""
        if self.spec.scale == "none":
            return 1.0
        if self.spec.scale == "head_width":
            return 1.0 / math.sqrt(q.shape[-1])
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
        if self.positions == "alibi":
            logits = logits + alibi_bias(self.heads, q.shape[-2], q.device, q.dtype)
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

"""Gated linear attention (GLA): linear attention with a decay that each token sets for each channel of the state.

For each head: α_t = σ(x_t·W_α1·W_α2 + b_α)^(1/τ); S_t = diag(α_t)·S_{t-1} + k_tᵀ·v_t; o_t = q_t·S_t;
y_t = (swish(x_t·W_r + b_r) ∘ concat(LN(o_t)))·W_O. Queries and keys have half the width, values the whole.

- Gated Linear Attention Transformers (arXiv:2312.06635), §4 and §4.4; https://arxiv.org/abs/2312.06635

There is no feature map, no rotation and no denominator; each head is normalised instead. All heads share the gain and
bias of LN. The authors' library differs: an RMS norm instead of LN, no b_r, and queries divided by √d_k (which the
norm cancels, up to its ε). A key head has ⌊d_v/2⌋ channels, at least one.

Causal only: the paper defines no bidirectional form. Padded tokens are in no sum, and their gate is 1.

Shapes: K pack, B batch, T tokens, D width, H heads, d_k and d_v key and value head widths.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ablate.nn.kernels import linear_attention
from ablate.nn.pack import (
    ConvolutionSlot,
    LayerNorm,
    State,
    convolved_together,
    join_heads,
    linear,
    split_heads,
)
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec

_EPSILON = 1e-5


class GatedLinearAttentionSpec(MixerSpec):
    """Gated linear attention: a recurrent state with a decay that each token sets for each channel."""

    source = "arXiv:2312.06635 §4.4"
    complexity = "Ld²/H"
    bidirectional_form = False
    uses_heads = True

    kind: Literal["gated_linear_attention"] = "gated_linear_attention"
    temperature: float = Field(default=16.0, gt=0)
    """τ: the larger it is, the slower the state decays."""
    gate_rank: int = Field(default=16, ge=1)
    """Width between W_α1 and W_α2."""

    def build(self, context: LayerContext) -> GatedLinearAttention:
        return GatedLinearAttention(self, context)

    def convolved_width(self, context: LayerContext) -> int:
        return context.width + 2 * context.heads * _key_width(context.width // context.heads)

    def cache(self, context: LayerContext, length: int) -> int:
        """The state."""
        d_v = context.width // context.heads
        return context.width * _key_width(d_v)

    def cost(self, context: LayerContext, length: int) -> Cost:
        """In recurrent form: each token decays the state, adds one product k·v and reads the state once."""
        d, h, vectors = context.width, context.heads, length * context.heads
        d_v = d // h
        d_k = _key_width(d_v)
        keys = h * d_k
        maps = linear_cost(length, d, keys) * 2 + linear_cost(length, d, d) * 2 + linear_cost(length, d, d, bias=True)
        maps = replace(maps, activations=2 * length * d)  # their input is kept once
        gate = replace(linear_cost(length, d, self.gate_rank), activations=0)
        gate += linear_cost(length, self.gate_rank, keys, bias=True)
        # log σ(z)/τ = -log(1 + e^(-z))/τ, and its exponential.
        gate += Cost(
            additions=length * keys,
            divisions=length * keys,
            exponentiations=3 * length * keys,
            activations=2 * length * keys,
        )
        sums = Cost(
            multiplications=vectors * 3 * d_k * d_v,
            additions=vectors * (d_k * d_v + (d_k - 1) * d_v),
            activations=h * linear_attention.kept_activations(length, d_k, d_v, "channel"),
        )
        norm = Cost(
            parameters=2 * d_v,
            multiplications=3 * length * d,
            additions=4 * length * d,
            divisions=2 * vectors,
            activations=2 * length * d + 2 * vectors,
        )
        swish = Cost(
            multiplications=2 * length * d,
            additions=length * d,
            divisions=length * d,
            exponentiations=length * d,
            activations=3 * length * d,
        )
        return maps + gate + sums + norm + swish


def _key_width(value_width: int) -> int:
    """d_k of a head: half of d_v."""
    return max(1, value_width // 2)


class GatedLinearAttention(nn.Module):
    """The module of `GatedLinearAttentionSpec`."""

    def __init__(self, spec: GatedLinearAttentionSpec, context: LayerContext) -> None:
        super().__init__()
        d, d_v = context.width, context.width // context.heads
        keys = context.heads * _key_width(d_v)
        self.spec = spec
        self.heads = context.heads
        self.query = linear(context, d, keys)
        self.key = linear(context, d, keys)
        self.value = linear(context, d, d)
        self.fade_down = linear(context, d, spec.gate_rank)
        self.fade_up = linear(context, spec.gate_rank, keys, bias=True)
        self.gate = linear(context, d, d, bias=True)
        self.norm = LayerNorm(context.pack, d_v, _EPSILON)
        self.output = linear(context, d, d, role="output")
        self.convolution = ConvolutionSlot.of(context, "on_qkv", spec.convolved_width(context))

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        q, k, v, log_decay = self._heads(x)
        if padding is not None:
            unreal = ~padding[:, :, None, :, None]
            k, log_decay = k.masked_fill(unreal, 0.0), log_decay.masked_fill(unreal, 0.0)
        return self._project_output(x, linear_attention.causal(q, k, v, log_decay))

    def step(self, x: Tensor, position: int, state: State) -> tuple[Tensor, State]:
        """The state: S."""
        q, k, v, log_decay = self._heads(x)
        o, kept = linear_attention.recur(q, k, v, state[0] if state else None, log_decay)
        return self._project_output(x, o), (kept,)

    def _heads(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys, values and log α, [K, B, H, T, ...]."""
        fade = F.logsigmoid(self.fade_up(self.fade_down(x))) / self.spec.temperature
        made = convolved_together(self.convolution, self.query(x), self.key(x), self.value(x))
        return tuple(split_heads(y, self.heads) for y in (*made, fade))

    def _project_output(self, x: Tensor, o: Tensor) -> Tensor:
        """Norm, gate and output projection: [K, B, H, T, d_v] to [K, B, T, D]."""
        mixed: Tensor = self.output(F.silu(self.gate(x)) * join_heads(self.norm(o)))
        return mixed

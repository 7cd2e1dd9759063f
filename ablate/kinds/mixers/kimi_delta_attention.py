"""Kimi Delta Attention (KDA): Gated DeltaNet with a decay for each channel of the state.

For each head: S ← diag(e^(g_t))·S; S ← S + k_t·(β_t·(v_t - Sᵀ·k_t))ᵀ; o_t = Sᵀ·q_t/√d, where β_t = σ(x_t·W_b) and
g_t = -e^A·softplus(x_t·W_f1·W_f2 + b) ∈ R^d, with one A for each head. q, k and v pass short causal convolutions with
SiLU; q and k have unit length. y = W_O·(RMSNorm(o) ∘ σ(x·W_g1·W_g2)), the norm over one head. The gate may be SiLU,
or left out (Table 1 of the paper).

- Kimi Linear (arXiv:2510.26692), eq. 1 and section 4; https://arxiv.org/abs/2510.26692 (`transformers`,
  `models/kimi_linear`)
- https://github.com/fla-org/flash-linear-attention at bc3b101 (`layers/kda.py`, `ops/kda/naive.py`), run beside it in
  double precision: outputs and gradients differ by 9e-16

A starts as ln U(1, 16), and softplus(b) as log-uniform in 0.001 to 0.1. Inputs of padded tokens are replaced by 0: they
write nothing, but the state decays over them. The state is computed in single precision at least. On a GPU where
flash-linear-attention is installed its kernel is used (`ablate.nn.kernels.flash_linear`).

Shapes: K pack, B batch, T tokens, D width, H heads, d head width.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from ablate.kinds.mixers.gated_deltanet import Decay, DeltaNet, delta_cost, gated_norm_cost, gates_cost, unit
from ablate.nn.pack import (
    RMSNorm,
    join_heads,
    linear,
    log_uniform,
    short_convolution_cost,
    split_heads,
)
from ablate.spec.base import refusal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec


class KimiDeltaAttentionSpec(MixerSpec):
    """Kimi Delta Attention: the delta rule on a state with a decay that each token sets for each channel."""

    source = "arXiv:2510.26692 eq. 1"
    complexity = "Ld²/H"
    bidirectional_form = False

    kind: Literal["kimi_delta_attention"] = "kimi_delta_attention"
    heads: int | None = Field(default=None, ge=1)
    """H; unless set, the model's."""
    head_width: int | None = Field(default=None, ge=1)
    """d, head width of queries, keys and values; unless set, the model's head width."""
    rank: int | None = Field(default=None, ge=1)
    """Width between W_f1 and W_f2, and between W_g1 and W_g2; unless set, d."""
    taps: int = Field(default=4, ge=0, le=64)
    """Kernel size of the short convolution, in tokens; 0: none, and SiLU stays."""
    gate: Literal["sigmoid", "silu", "none"] = "sigmoid"
    """The nonlinearity of the output gate; `none`: there is no gate."""
    gate_bias: bool = False
    """Whether W_g2 has a bias (flash-linear-attention's layer has one)."""
    eps: float = Field(default=1e-5, gt=0)
    """ε of the norm of each head."""

    @model_validator(mode="after")
    def _has_the_gate_of_its_bias(self) -> Self:
        if self.gate_bias and self.gate == "none":
            raise refusal(("gate_bias",), True, "there is no gate that could have a bias", "Leave `gate_bias` out.")
        return self

    def sizes(self, context: LayerContext) -> tuple[int, int, int]:
        """H, d and the rank."""
        width = self.head_width or max(1, context.head_width)
        return self.heads or context.heads, width, self.rank or width

    def convolved_width(self, context: LayerContext) -> int:
        heads, width, _ = self.sizes(context)
        return 3 * heads * width

    def build(self, context: LayerContext) -> KimiDeltaAttention:
        return KimiDeltaAttention(self, context)

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        return (
            (("query", "W_Q"), ("key", "W_K"), ("value", "W_V")),
            (("convolution", f"SiLU(conv {self.taps})" if self.taps else "SiLU"),),
            (("state", "S ← diag(e^g) S + k β(v - Sᵀk)ᵀ"),),
            (
                (
                    "norm",
                    "RMSNorm by head" + {"sigmoid": " × σ(W_g x)", "silu": " × SiLU(W_g x)", "none": ""}[self.gate],
                ),
            ),
            (("output", "W_O"),),
        )

    def cache(self, context: LayerContext, length: int) -> int:
        """The state, and the last inputs of the convolutions."""
        heads, width, _ = self.sizes(context)
        return heads * width * (width + 3 * max(0, self.taps - 1))

    def cost(self, context: LayerContext, length: int) -> Cost:
        """In recurrent form: each token decays the state, reads it twice and writes it once."""
        d = context.width
        heads, width, rank = self.sizes(context)
        inner, rows = heads * width, length * heads
        gated = self.gate != "none"
        maps = linear_cost(length, d, inner) * 3 + linear_cost(length, d, rank) * (1 + gated)
        maps += linear_cost(length, d, heads)
        maps = replace(maps, activations=length * d) + linear_cost(length, inner, d)
        maps += linear_cost(length, rank, inner)
        maps += linear_cost(length, rank, inner, bias=self.gate_bias) * gated
        units = 2 * length * inner
        gates = gates_cost(length, inner, heads)
        return (
            maps
            + short_convolution_cost(length, 3 * inner, self.taps)
            + Cost(multiplications=2 * units, additions=units, divisions=units, activations=2 * units)  # unit length
            + replace(gates, parameters=inner + heads)
            + delta_cost(length, heads, width, width, by_channel=True)
            + gated_norm_cost(rows, width, gate=self.gate)
        )


class KimiDeltaAttention(DeltaNet):
    """The module of `KimiDeltaAttentionSpec`."""

    def __init__(self, spec: KimiDeltaAttentionSpec, context: LayerContext) -> None:
        heads, width, rank = spec.sizes(context)
        inner = heads * width
        super().__init__(context, heads, inner, inner, spec.taps)
        self.spec = spec
        self.fade_down = linear(context, context.width, rank)
        self.fade_up = linear(context, rank, inner)
        self.decay = Decay(context.pack, heads, width)
        self.decay.initial["rate"] = log_uniform(1.0, 16.0)
        self.gate = {"sigmoid": torch.sigmoid, "silu": F.silu, "none": None}[spec.gate]
        if self.gate is not None:
            self.gate_down = linear(context, context.width, rank)
            self.gate_up = linear(context, rank, inner, bias=spec.gate_bias)
        self.norm = RMSNorm(context.pack, width, spec.eps)

    def split(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        q, k, v = (split_heads(part, self.heads) for part in (q, k, v))
        strength = torch.sigmoid(self.strength(x)).transpose(2, 3).unsqueeze(-1)
        fade = split_heads(self.decay(self.fade_up(self.fade_down(x))), self.heads)
        return unit(q) / math.sqrt(q.shape[-1]), unit(k), v, strength, fade

    def join(self, x: Tensor, o: Tensor) -> Tensor:
        y = join_heads(self.norm(o))
        mixed: Tensor = self.output(y if self.gate is None else y * self.gate(self.gate_up(self.gate_down(x))))
        return mixed

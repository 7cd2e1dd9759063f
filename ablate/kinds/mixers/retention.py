"""Multi-scale retention (RetNet): linear attention with a rotation and, for each head, a fixed decay.

For each head, with Q_n = (x_n·W_Q)·e^(inθ), K_n = (x_n·W_K)·e^(inθ), V = X·W_V and D_nm = γ^(n-m) for m ≤ n, else 0:
R_nm = (Q_n·K_m/√d_h)·D_nm/√(Σ_i D_ni); head = (R/max(|Σ_m R_nm|, 1))·V;
MSR(X) = (swish(X·W_G) ∘ GroupNorm_H(concat(heads)))·W_O, γ = 1 - 2^(-5-h) for head h = 0 ... H-1.
Recurrent form: S_n = γ·S_{n-1} + K_nᵀ·V_n, head_n = Q_n·S_n, divided as above; computed here in chunks.

- Retentive Network (arXiv:2307.08621), eqs 5 to 8 and §2.2; https://arxiv.org/abs/2307.08621

W_V and W_G map to twice the width, as in §3.1. θ_i = 10000^(-2i/d_h), xPos's rotation (arXiv:2212.10554) without its
decay; in a head of odd width the last channel is not rotated. GroupNorm has no gain. The released code differs:
θ_i = 10000^(-i/(d_h/2 - 1)), an RMS norm instead of GroupNorm, and denominators without gradient (the same result
after the norm, up to its ε).

Causal only: the paper defines no bidirectional form. Padded tokens are in no sum, including those of D, but they count
as positions, so that decay and rotation depend on the distance of two tokens.

Shapes: K pack, B batch, T tokens, D width, H heads, d_h = D/H head width, e value head width.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ablate.nn.kernels import linear_attention
from ablate.nn.pack import ConvolutionSlot, State, convolved_together, join_heads, linear, split_heads
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec

_EPSILON = 1e-5
_SINGLE_DECAY = math.log(127 / 128)


class RetentionSpec(MixerSpec):
    """Multi-scale retention: a recurrent state with a fixed decay, at a different rate in each head."""

    source = "arXiv:2307.08621 eqs 5-8"
    complexity = "Ld²/H"
    bidirectional_form = False
    uses_heads = True

    kind: Literal["retention"] = "retention"
    decay: Literal["multi_scale", "single", "none"] = "multi_scale"
    """`multi_scale`: γ_h = 1 - 2^(-5-h); `single`: 127/128 in all heads; `none`: 1; all in the paper's ablations."""
    norm: bool = True
    """Whether each head's output is normalised (GroupNorm)."""
    gate: bool = True
    """Whether swish(X·W_G) multiplies the output."""
    value_ratio: int = Field(default=2, ge=1)
    """Width of values and gate divided by the model's width."""

    def build(self, context: LayerContext) -> Retention:
        return Retention(self, context)

    def convolved_width(self, context: LayerContext) -> int:
        return (2 + self.value_ratio) * context.width

    def cache(self, context: LayerContext, length: int) -> int:
        """The state and the sum of keys."""
        return context.width * (self.value_ratio * context.width // context.heads + 1)

    def cost(self, context: LayerContext, length: int) -> Cost:
        """In recurrent form: each token decays the state, adds one product k·v and reads the state once."""
        d, vectors = context.width, length * context.heads
        d_h, wide = d // context.heads, self.value_ratio * d
        e = self.value_ratio * d_h
        maps = linear_cost(length, d, d) * 2 + linear_cost(length, d, wide) + linear_cost(length, wide, d)
        maps = replace(maps, activations=length * (d + wide))  # their input is kept once
        rotation = Cost(multiplications=vectors * 8 * (d_h // 2) + length * d, additions=vectors * 4 * (d_h // 2))
        sums = Cost(
            multiplications=vectors * (2 * d_h * e + d_h + (0 if self.decay == "none" else d_h * (e + 1))),
            additions=vectors * (d_h * (e + 1) + (d_h - 1) * (e + 1)),
            divisions=vectors * e,
            activations=context.heads * linear_attention.kept_activations(length, d_h, e + 1, "head")
            + vectors * (e + 5),
        )
        total = maps + rotation + sums
        if self.norm:
            total += Cost(
                multiplications=2 * length * wide,
                additions=3 * length * wide,
                divisions=2 * vectors,
                activations=length * wide + 2 * vectors,
            )
        if self.gate:
            total += replace(linear_cost(length, d, wide), activations=0)
            total += Cost(
                multiplications=2 * length * wide,
                additions=length * wide,
                divisions=length * wide,
                exponentiations=length * wide,
                activations=3 * length * wide,
            )
        return total


class Retention(nn.Module):
    """The module of `RetentionSpec`."""

    log_decay: Tensor
    theta: Tensor

    def __init__(self, spec: RetentionSpec, context: LayerContext) -> None:
        super().__init__()
        d, wide = context.width, spec.value_ratio * context.width
        d_h = d // context.heads
        self.spec = spec
        self.heads = context.heads
        self.query = linear(context, d, d)
        self.key = linear(context, d, d)
        self.value = linear(context, d, wide)
        self.gate = linear(context, d, wide) if spec.gate else None
        self.output = linear(context, wide, d, role="output")
        self.convolution = ConvolutionSlot.of(context, "on_qkv", spec.convolved_width(context))
        rates = {
            "multi_scale": torch.log1p(-(2.0 ** (-5 - torch.arange(self.heads, dtype=torch.float64)))),
            "single": torch.full((self.heads,), _SINGLE_DECAY, dtype=torch.float64),
            "none": torch.zeros(self.heads, dtype=torch.float64),
        }
        self.register_buffer("log_decay", rates[spec.decay], persistent=False)
        pair = torch.arange(d_h // 2, dtype=torch.float64)
        self.register_buffer("theta", 10000.0 ** (-2 * pair / d_h), persistent=False)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        return self._project_output(x, self._retain(*self._heads(x, 0), padding))

    def step(self, x: Tensor, position: int, state: State) -> tuple[Tensor, State]:
        """The state: S, and the sum of keys."""
        q, k, v = self._heads(x, position)
        decay = self.log_decay[:, None, None]  # [H, 1, 1]
        v = torch.cat([v, v.new_ones(1).expand(*v.shape[:-1], 1)], -1)
        summed, kept = linear_attention.recur(q, k, v, state[0] if state else None, decay.to(q.dtype))
        weight = self._weight(position + 1)[:, -1:].to(q.dtype)
        return self._project_output(x, summed[..., :-1] / torch.maximum(summed[..., -1:].abs(), weight.sqrt())), (kept,)

    def _heads(self, x: Tensor, first: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [K, B, H, T, ...] of tokens from position `first` on."""
        made = convolved_together(self.convolution, self.query(x), self.key(x), self.value(x))
        q, k, v = (split_heads(y, self.heads) for y in made)
        position = torch.arange(first, first + x.shape[-2], dtype=self.theta.dtype, device=x.device)
        angle = position[:, None] * self.theta  # [T, d_h // 2]
        sine, cosine = angle.sin().to(q.dtype), angle.cos().to(q.dtype)
        return _rotate(q, cosine, sine) / math.sqrt(q.shape[-1]), _rotate(k, cosine, sine), v

    def _project_output(self, x: Tensor, y: Tensor) -> Tensor:
        """Norm, gate and output projection: [K, B, H, T, e] to [K, B, T, D]."""
        if self.spec.norm:
            y = F.layer_norm(y, y.shape[-1:], eps=_EPSILON)
        y = join_heads(y)  # [K, B, T, value_ratio·D]
        if self.gate is not None:
            y = F.silu(self.gate(x)) * y
        mixed: Tensor = self.output(y)
        return mixed

    def _retain(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None) -> Tensor:
        """(R/max(|Σ R|, 1))·V, [K, B, H, T, e]: with w = Σ D, that is (Σ D·qk·v)/max(|Σ D·qk|, √w)."""
        length = q.shape[-2]
        decay = self.log_decay[:, None, None].expand(-1, length, -1)  # [H, T, 1]
        ones = q.new_ones(length, 1)
        if padding is None:
            weight = self._weight(length).to(q.dtype)
        else:
            real = padding[:, :, None, :, None]
            k, counted = k.masked_fill(~real, 0.0), real.to(q.dtype).expand(-1, -1, self.heads, -1, -1)
            weight = linear_attention.causal(torch.ones_like(counted), counted, ones.expand_as(counted), decay)
            weight = weight.masked_fill(weight == 0, 1.0)  # nothing seen yet: the sums are 0 too
        summed = linear_attention.causal(q, k, torch.cat([v, ones.expand(*v.shape[:-1], 1)], -1), decay)
        return summed[..., :-1] / torch.maximum(summed[..., -1:].abs(), weight.sqrt())

    def _weight(self, length: int) -> Tensor:
        """w = Σ_{i≤n} γ^i = (1 - γ^(n+1))/(1 - γ), [H, T, 1], where no token is padding."""
        counts = torch.arange(1, length + 1, dtype=self.log_decay.dtype, device=self.log_decay.device)[:, None]
        if self.spec.decay == "none":
            return counts.expand(self.heads, -1, -1)
        decay = self.log_decay[:, None, None]
        return torch.expm1(counts * decay) / torch.expm1(decay)


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Each pair of channels rotated by the angle of its token, [..., T, d_h]; cosines and sines [T, d_h // 2]."""
    turning = 2 * cosine.shape[-1]
    even, odd = x[..., 0:turning:2], x[..., 1:turning:2]
    turned = torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1).flatten(-2)
    return turned if turning == x.shape[-1] else torch.cat([turned, x[..., turning:]], -1)

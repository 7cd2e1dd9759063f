"""Learned kernel, generative: φ-attention whose random directions ω a small network generates from noise.

y_t = φ(q_t)·Σ_s φ(k_s)ᵀ·v_s / (φ(q_t)·Σ_s φ(k_s)ᵀ), queries and keys scaled by d_h^(-1/4), ε_r ~ N(0, I_{d_h}), r ≤ R:
ω_r = tanh(W₂·leaky(BN(W₁·ε_r + b₁)) + b₂), d_h to 4d_h to d_h, BN over the R draws, slope 0.01 below 0;
`rks` (Generative-RKS): φ(x) = √(1/R)·[cos ω_rᵀx, sin ω_rᵀx] ⊕ 1, m = 2R + 1;
`prf` (Generative-PRF): φ(x) = exp(ω_rᵀx - ‖x‖²)/√R, m = R.

- On Learning the Transformer Kernel (arXiv:2110.08323); https://arxiv.org/abs/2110.08323

The equations, R and the network are those of the authors' released code (ListOps and retrieval; its text model has the
widths d_h/2, 2d_h, 4d_h, d_h). Departures: that code redraws the noise in every forward pass, also in evaluation; here
it is drawn once, from the member's seed, one set for all heads, so that batch normalisation has the same batch in
training and evaluation and needs no running means. Its positive form makes (P - 1) // 2 draws where P are meant and
divides by √(P - 1); here there are R draws and √R, a constant that cancels. It adds 1e-6 to the denominator; here
nothing is added.

Shapes: K pack, B batch, T tokens, D width, H heads, d_h = D/H head width, m features.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from ablate.nn.kernels.random_features import (
    kernel_cost,
    kernel_features,
    project_vectors,
    scale_vectors,
    usual_samples,
    xavier_uniform,
)
from ablate.nn.pack import Linear, Packed, constant, normal, zeros
from ablate.nn.pack.attention import FeatureMap, FeatureMixerSpec
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext

_HIDDEN = 4
_EPSILON = 1e-5


class GenerativeSpec(FeatureMixerSpec):
    """Learned kernel whose spectral density is a network fed with noise (Generative-RKS, Generative-PRF)."""

    source = "arXiv:2110.08323 Generative-RKS and Generative-PRF"
    complexity = "Lmd"

    kind: Literal["generative"] = "generative"
    form: Literal["rks", "prf"] = "rks"
    """`rks`: random kitchen sinks (cosines and sines); `prf`: positive random features (exponentials)."""
    samples: int | None = Field(default=None, ge=2)
    """R, number of draws of noise; unless set, the power of two near d_h·ln d_h, with m at most the context."""

    @property
    def logarithmic(self) -> bool:
        return self.form == "prf"

    def feature_map(self, context: LayerContext) -> FeatureMap:
        samples = self._samples(context)
        return GenerativeFeatures(context.pack, context.head_width, samples, logarithmic=self.logarithmic)

    def feature_count(self, context: LayerContext) -> int:
        r = self._samples(context)
        return 2 * r + 1 if self.form == "rks" else r

    def feature_cost(self, context: LayerContext) -> Cost:
        d_h, r = context.head_width, self._samples(context)
        projected = Cost(multiplications=r * d_h, additions=r * (d_h - 1), activations=d_h)
        return projected + kernel_cost(d_h, r, logarithmic=self.logarithmic)

    def cost_once(self, context: LayerContext) -> Cost:
        """The directions are generated once in each forward pass."""
        d_h, r = context.head_width, self._samples(context)
        hidden = _HIDDEN * d_h
        network = linear_cost(r, d_h, hidden, bias=True) + linear_cost(r, hidden, d_h, bias=True)
        return network + Cost(
            parameters=2 * hidden,
            multiplications=4 * r * hidden + r * d_h,
            additions=4 * r * hidden,
            divisions=r * hidden,
            exponentiations=r * d_h,
            activations=3 * r * hidden + r * d_h,
        )

    def _samples(self, context: LayerContext) -> int:
        usual = usual_samples(context.head_width)
        most = context.context // 2 if self.form == "rks" else context.context
        return self.samples or max(2, min(usual, most))


class Generator(Packed):
    """The network from noise to directions, R rows for each member."""

    noise: Tensor
    gain: Tensor
    shift: Tensor

    def __init__(self, pack: int, width: int, samples: int) -> None:
        super().__init__(pack)
        hidden = _HIDDEN * width
        self.declare("noise", (samples, width), normal(1.0), trainable=False)
        self.declare("gain", (hidden,), constant(1.0))
        self.declare("shift", (hidden,), zeros)
        self.hidden = Linear(pack, width, hidden, bias=True, initial=xavier_uniform)
        self.directions = Linear(pack, hidden, width, bias=True, initial=xavier_uniform)

    def forward(self) -> Tensor:
        """ω, [K, R, d_h]."""
        z = self.hidden(self.noise)
        variance, mean = torch.var_mean(z, 1, correction=0, keepdim=True)
        z = (z - mean) * (variance + _EPSILON).rsqrt() * self.gain.unsqueeze(1) + self.shift.unsqueeze(1)
        omega: Tensor = self.directions(F.leaky_relu(z)).tanh()
        return omega


class GenerativeFeatures(FeatureMap):
    """φ(x) = √(1/R)·[cos ωᵀx, sin ωᵀx] ⊕ 1, or log φ of φ(x) = exp(ωᵀx - ‖x‖²)/√R."""

    def __init__(self, pack: int, width: int, samples: int, *, logarithmic: bool) -> None:
        super().__init__(pack)
        self.logarithmic = logarithmic
        self.generator = Generator(pack, width, samples)

    def forward(self, *xs: Tensor) -> tuple[Tensor, ...]:
        """Each [K, B, H, T, d_h] to [K, B, H, T, 2R + 1], or to [K, B, H, T, R]."""
        omega = scale_vectors(self.generator())
        return tuple(kernel_features(project_vectors(x, omega), x, logarithmic=self.logarithmic) for x in xs)

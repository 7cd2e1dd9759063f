"""Learned kernel, Gaussian mixture: φ-attention whose random directions ω come from a Gaussian learned for each head.

y_t = φ(q_t)·Σ_s φ(k_s)ᵀ·v_s / (φ(q_t)·Σ_s φ(k_s)ᵀ), queries and keys scaled by d_h^(-1/4), ε_r ~ N(0, I) for r ≤ R:
`rks` (GMM-RKS): ω_r± = Σᵀ·ε_r ± μ, φ(x) = √(1/R)·[cos ω_r±ᵀx, sin ω_r±ᵀx] ⊕ 1, m = 4R + 1, Σ a matrix [d_h, d_h];
`prf` (GMM-PRF): ω_r = e^(σ/2) ∘ ε_r + μ, φ(x) = exp(ω_rᵀx - ‖x‖²)/√R, m = R.

- On Learning the Transformer Kernel (arXiv:2110.08323); https://arxiv.org/abs/2110.08323

The equations, R and the initial values (Σ and σ by Xavier's rule on the stacked tensors, μ uniform) are those of the
authors' released code. Departures: that code redraws the noise ε in every forward pass, also in evaluation; here it is
drawn once, from the member's seed, and shared by all heads. It adds 1e-6 to the denominator; here nothing is added.

Shapes: K pack, B batch, T tokens, D width, H heads, d_h = D/H head width, m features.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from ablate.nn.kernels.random_features import fourier, log_positive, scale_vectors, usual_samples, xavier_uniform
from ablate.nn.pack import normal, uniform
from ablate.nn.pack.attention import FeatureMap, FeatureMixerSpec
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext


class GmmSpec(FeatureMixerSpec):
    """Learned kernel whose spectral density is a mixture of Gaussians, one for each head (GMM-RKS, GMM-PRF)."""

    source = "arXiv:2110.08323 GMM-RKS and GMM-PRF"
    complexity = "Lmd"

    kind: Literal["gmm"] = "gmm"
    form: Literal["rks", "prf"] = "rks"
    """`rks`: random kitchen sinks (cosines and sines); `prf`: positive random features (exponentials)."""
    samples: int | None = Field(default=None, ge=1)
    """R, number of draws of noise; unless set, the power of two near d_h·ln d_h, with m at most the context."""

    @property
    def logarithmic(self) -> bool:
        return self.form == "prf"

    def feature_map(self, context: LayerContext) -> FeatureMap:
        mixture = FourierMixture if self.form == "rks" else PositiveMixture
        return mixture(context.pack, context.heads, context.head_width, self._samples(context))

    def feature_count(self, context: LayerContext) -> int:
        r = self._samples(context)
        return 4 * r + 1 if self.form == "rks" else r

    def feature_cost(self, context: LayerContext) -> Cost:
        """Cosines and sines are counted with the exponentials."""
        d_h, r = context.head_width, self._samples(context)
        if self.form == "rks":
            return Cost(
                multiplications=2 * r * d_h + 4 * r + d_h,
                additions=2 * r * (d_h - 1),
                exponentiations=4 * r,
                activations=d_h,
            )
        return Cost(
            multiplications=r * d_h + d_h, additions=r * (d_h - 1) + d_h - 1 + 2 * r, exponentiations=r, activations=d_h
        )

    def cost_once(self, context: LayerContext) -> Cost:
        h, d_h, r = context.heads, context.head_width, self._samples(context)
        if self.form == "rks":
            return Cost(
                parameters=h * d_h * (d_h + 1),
                multiplications=h * r * d_h * d_h,
                additions=h * r * d_h * (d_h - 1) + 2 * h * r * d_h,
                activations=2 * h * r * d_h,
            )
        return Cost(
            parameters=2 * h * d_h,
            multiplications=h * d_h * (2 * r + 1),
            additions=h * d_h * r,
            exponentiations=h * d_h,
            activations=h * d_h * (r + 1),
        )

    def _samples(self, context: LayerContext) -> int:
        usual = usual_samples(context.head_width)
        most = context.context // 4 if self.form == "rks" else context.context
        return self.samples or max(1, min(usual, most))


class FourierMixture(FeatureMap):
    """φ(x) = √(1/R)·[cos ωᵀx, sin ωᵀx] ⊕ 1 with ω = Σᵀ·ε ± μ."""

    logarithmic = False
    noise: Tensor
    sigma: Tensor
    mean: Tensor

    def __init__(self, pack: int, heads: int, width: int, samples: int) -> None:
        super().__init__(pack)
        self.declare("noise", (width, samples), normal(1.0), trainable=False)
        self.declare("sigma", (heads, width, width), xavier_uniform, decay=True)
        self.declare("mean", (heads, width), uniform(1 / width))

    def forward(self, *xs: Tensor) -> tuple[Tensor, ...]:
        """Each [K, B, H, T, d_h] to [K, B, H, T, 4R + 1]."""
        centred = torch.einsum("khsd,ksr->khdr", self.sigma, self.noise)
        mean = self.mean.unsqueeze(-1)
        omega = torch.cat([centred + mean, centred - mean], -1)  # [K, H, d_h, 2R]
        us = (torch.einsum("kbhtd,khdr->kbhtr", scale_vectors(x), omega) for x in xs)
        return tuple(fourier(u, 1 / math.sqrt(self.noise.shape[-1])) for u in us)


class PositiveMixture(FeatureMap):
    """φ(x) = exp(ωᵀx - ‖x‖²)/√R with ω = e^(σ/2) ∘ ε + μ, given as its logarithm."""

    logarithmic = True
    noise: Tensor
    sigma: Tensor
    mean: Tensor

    def __init__(self, pack: int, heads: int, width: int, samples: int) -> None:
        super().__init__(pack)
        self.declare("noise", (width, samples), normal(1.0), trainable=False)
        self.declare("sigma", (heads, width), xavier_uniform)
        self.declare("mean", (heads, width), uniform(1 / math.sqrt(width)))

    def forward(self, *xs: Tensor) -> tuple[Tensor, ...]:
        """Each [K, B, H, T, d_h] to log φ, [K, B, H, T, R]."""
        noise = self.noise.mT.unsqueeze(1)  # [K, 1, R, d_h]
        omega = scale_vectors((self.sigma / 2).exp().unsqueeze(-2) * noise + self.mean.unsqueeze(-2))
        return tuple(
            log_positive(torch.einsum("kbhtd,khrd->kbhtr", x, omega), x, weight=1 / math.sqrt(x.shape[-1])) for x in xs
        )

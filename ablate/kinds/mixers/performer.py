"""Performer: φ-attention whose φ approximates the softmax kernel by positive orthogonal random features (FAVOR+).

y_t = φ(q_t)·Σ_s φ(k_s)ᵀ·v_s / (φ(q_t)·Σ_s φ(k_s)ᵀ), with
`softmax`: φ(x) = exp(ωᵀx' - ‖x'‖²/2)/√m, x' = x/d_h^¼, so that E[φ(q)·φ(k)] = exp(qᵀk/√d_h);
`relu`: φ(x) = max(ωᵀx, 0)/√m + 1e-3.
The m directions ω are Gaussian vectors, orthogonal to each other in blocks of d_h.

- Rethinking Attention with Performers (arXiv:2009.14794), Lemma 1 and §2; https://arxiv.org/abs/2009.14794

Other implementations differ. Google's code subtracts the largest key of the whole sequence and then adds a small ε to
the softmax features, so that later tokens change a causal model by more than rounding; here nothing is added, and what
is subtracted cancels exactly (`nn.kernels.linear_attention`: in causal models the largest key so far). It redraws ω
periodically; here ω is drawn once, from the member's seed, and shared by all heads. Long Range Arena's Performer has
ReLU features without projection.

Shapes: K pack, B batch, T tokens, D width, H heads, d_h = D/H head width, m features.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field
from torch import Tensor

from ablate.nn.kernels.random_features import log_positive, orthogonal_directions, project_vectors, scale_vectors
from ablate.nn.pack.attention import FeatureMap, FeatureMixerSpec
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext

_RELU_EPSILON = 1e-3


class PerformerSpec(FeatureMixerSpec):
    """FAVOR+: softmax attention approximated in linear time by positive orthogonal random features."""

    source = "arXiv:2009.14794 Lemma 1, §2"
    complexity = "Lmd"

    kind: Literal["performer"] = "performer"
    kernel: Literal["softmax", "relu"] = "softmax"
    """`softmax`: exponentials, which approximate softmax; `relu`: the paper's generalised attention with ReLU."""
    features: int = Field(default=256, ge=1)
    """m, number of random directions."""

    @property
    def logarithmic(self) -> bool:
        return self.kernel == "softmax"

    def feature_map(self, context: LayerContext) -> FeatureMap:
        return OrthogonalFeatures(context.pack, context.head_width, self.features, logarithmic=self.logarithmic)

    def feature_count(self, context: LayerContext) -> int:
        return self.features

    def feature_cost(self, context: LayerContext) -> Cost:
        d_h, m = context.head_width, self.features
        projected = Cost(multiplications=m * d_h, additions=m * (d_h - 1))
        if self.kernel == "relu":
            return projected + Cost(multiplications=m, additions=m, activations=m)
        return projected + Cost(multiplications=d_h + 1, additions=d_h - 1 + 2 * m, exponentiations=m, activations=d_h)


class OrthogonalFeatures(FeatureMap):
    """log φ of φ(x) = exp(ωᵀx' - ‖x'‖²/2)/√m, or φ(x) = max(ωᵀx, 0)/√m + 1e-3."""

    omega: Tensor

    def __init__(self, pack: int, width: int, features: int, *, logarithmic: bool) -> None:
        super().__init__(pack)
        self.logarithmic = logarithmic
        self.declare("omega", (features, width), orthogonal_directions, trainable=False)

    def forward(self, *xs: Tensor) -> tuple[Tensor, ...]:
        """Each [K, B, H, T, d_h] to [K, B, H, T, m]."""
        if self.logarithmic:
            omega = scale_vectors(self.omega)
            return tuple(log_positive(project_vectors(x, omega), x, weight=0.5 / math.sqrt(x.shape[-1])) for x in xs)
        us = (project_vectors(x, self.omega) for x in xs)
        return tuple(u.relu() / math.sqrt(self.omega.shape[1]) + _RELU_EPSILON for u in us)

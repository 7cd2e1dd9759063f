"""Linear attention: φ-attention with φ(x) = elu(x) + 1.

y_t = φ(q_t)·Σ_s φ(k_s)ᵀ·v_s / (φ(q_t)·Σ_s φ(k_s)ᵀ), over all s, or causal over s ≤ t.

- Transformers are RNNs (arXiv:2006.16236), eqs 5, 7 and 9 to 12; https://arxiv.org/abs/2006.16236

Other implementations differ: the authors' library adds ε = 1e-6 to the denominator; Long Range Arena's version ignores
padding. Here padded keys are in neither sum, and nothing is added.

Shapes: K pack, B batch, T tokens, D width, H heads, d_h = D/H head width.
"""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from ablate.nn.pack.attention import FeatureMap, FeatureMixerSpec
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext


class LinearSpec(FeatureMixerSpec):
    """Linear attention with the feature map elu + 1."""

    source = "arXiv:2006.16236 eqs 5, 7, 9-12"
    complexity = "Ld²/H"

    kind: Literal["linear"] = "linear"

    def feature_map(self, context: LayerContext) -> FeatureMap:
        return EluPlusOne(context.pack)

    def feature_count(self, context: LayerContext) -> int:
        return context.head_width

    def feature_cost(self, context: LayerContext) -> Cost:
        """An exponential and two additions are counted for every feature, as if x were negative."""
        d_h = context.head_width
        return Cost(additions=2 * d_h, exponentiations=d_h, activations=d_h)


class EluPlusOne(FeatureMap):
    """φ(x) = elu(x) + 1: x + 1 above 0, eˣ below."""

    logarithmic = False

    def forward(self, *xs: Tensor) -> tuple[Tensor, ...]:
        """Each [K, B, H, T, d_h] to the same."""
        return tuple(F.elu(x) + 1 for x in xs)

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

from ablate.nn.pack.attention import FeatureAttention, FeatureMap, feature_attention_cost, state_size
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec


class LinearSpec(MixerSpec):
    """Linear attention with the feature map elu + 1."""

    source = "arXiv:2006.16236 eqs 5, 7, 9-12"
    complexity = "Ld²/H"
    uses_heads = True
    relative_positions = frozenset({"query_key"})
    any_head_width = True

    kind: Literal["linear"] = "linear"

    def build(self, context: LayerContext) -> FeatureAttention:
        return FeatureAttention(context, EluPlusOne(context.pack))

    def cache(self, context: LayerContext, length: int) -> int:
        """The state and the sum of features."""
        return state_size(context, context.head_width)

    def cost(self, context: LayerContext, length: int) -> Cost:
        """An exponential and two additions are counted for every feature, as if x were negative."""
        d_h = context.head_width
        feature = Cost(additions=2 * d_h, exponentiations=d_h, activations=d_h)
        return feature_attention_cost(context, length, d_h, feature, logarithmic=False)


class EluPlusOne(FeatureMap):
    """φ(x) = elu(x) + 1: x + 1 above 0, eˣ below."""

    logarithmic = False

    def forward(self, *xs: Tensor) -> tuple[Tensor, ...]:
        """Each [K, B, H, T, d_h] to the same."""
        return tuple(F.elu(x) + 1 for x in xs)

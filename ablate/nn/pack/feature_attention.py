"""Multi-head φ-attention for any feature map φ: y_t = φ(q_t)·Σ_s φ(k_s)ᵀ·v_s / (φ(q_t)·Σ_s φ(k_s)ᵀ).

Bidirectional: s runs over all real tokens; causal: over real s ≤ t (prefix sums). Time and memory are linear in T.
The positions of a layer are applied to queries and keys before φ.

Shapes: K pack, B batch, T tokens, D width, H heads, d_h = D/H head width, m features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from ablate.nn.kernels import linear_attention
from ablate.nn.pack import AttentionMaps, Packed, State, maps_cost
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext


class FeatureMap(Packed, ABC):
    """φ, the same for queries and keys.

    Attributes:
        logarithmic: Whether `forward` returns log φ of a positive φ; the attention then never overflows.
    """

    logarithmic: bool

    @abstractmethod
    def forward(self, *xs: Tensor) -> tuple[Tensor, ...]:
        """Queries and keys, each [K, B, H, T, d_h], to the features of each, [K, B, H, T, m]."""


class FeatureAttention(AttentionMaps):
    """φ-attention with four maps without biases."""

    def __init__(self, context: LayerContext, features: FeatureMap) -> None:
        super().__init__(context)
        self.features = features

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        q, k, v = self._features(x)
        attend = linear_attention.normalised_from_logs if self.features.logarithmic else linear_attention.normalised
        real = None if padding is None else padding.unsqueeze(2)  # [K, B, 1, T]
        return self.joined(attend(q, k, v, is_causal=self.causal, real=real))

    def step(self, x: Tensor, place: int, state: State) -> tuple[Tensor, State]:
        """The state: Σ φ(k)ᵀ·v with Σ φ(k) as its last column, and the largest logarithm so far."""
        q, k, v = self._features(x, place)
        y, state = linear_attention.recur_normalised(q, k, v, state, logarithmic=self.features.logarithmic)
        return self.joined(y), state

    def _features(self, x: Tensor, first: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Features of queries and of keys [K, B, H, T, m] (or their logarithms), and values [K, B, H, T, d_h]."""
        q, k, v = self.projected(x, first)
        features_q, features_k = self.features(q, k)
        return features_q, features_k, v


def state_size(context: LayerContext, size: int) -> int:
    """Number of scalars of Σ φ(k)ᵀ·v and Σ φ(k) in all heads, for `size` features."""
    return size * (context.inner_width + context.heads)


def feature_attention_cost(context: LayerContext, length: int, size: int, feature: Cost, *, logarithmic: bool) -> Cost:
    """Cost of the four maps, of φ and of the sums.

    Args:
        context: Context of the mixer's layer.
        length: L, tokens.
        size: m, features of a query or key.
        feature: Cost of φ for one query or key; its activations do not include the result.
        logarithmic: As `FeatureMap.logarithmic`.
    """
    vectors, d_h = length * context.heads, context.head_width
    # A token adds kᵀ·v and k to the state and reads both with q.
    sums = Cost(
        multiplications=vectors * size * (2 * d_h + 1),
        additions=vectors * (size * (d_h + 1) + (size - 1) * (d_h + 1)),
        divisions=vectors * d_h,
        activations=vectors * (d_h + 2),
    )
    if not context.causal:
        in_product = length * (2 * size + d_h + 1)
    else:
        in_product = linear_attention.kept(length, size, d_h + 1, "head" if logarithmic else "none")
    sums += Cost(activations=context.heads * in_product)
    return maps_cost(context, length) + feature * (2 * vectors) + sums

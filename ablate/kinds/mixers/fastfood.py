"""Learned kernel, FastFood: φ-attention whose projection is a product of diagonal and Hadamard matrices.

y_t = φ(q_t)·Σ_s φ(k_s)ᵀ·v_s / (φ(q_t)·Σ_s φ(k_s)ᵀ), queries and keys scaled by d_h^(-1/4), and
V·x = S·H·G·Π·H·B·x/√n: S, G, B learned diagonals, H the Hadamard matrix (1 and -1), Π a random permutation;
`rks` (FastFood-RKS): φ(x) = √(1/n)·[cos V·x, sin V·x] ⊕ 1, m = 2n + 1;
`prf` (FastFood-PRF): φ(x) = exp(V·x - ‖x‖²)/√n, m = n.
n is d_h, or the next power of two above it, x then being filled up with zeros, as FastFood (arXiv:1408.3060) has it.

- On Learning the Transformer Kernel (arXiv:2110.08323); https://arxiv.org/abs/2110.08323

The equations and the initial values (S, G, B ~ N(0, 1/n), one of each for all heads) are those of the authors'
released code, in the setting that learns all three. Departures: that code redraws Π in every forward pass, also in
evaluation; here it is drawn once, from the member's own seed. Its class of positive features cannot be instantiated (it
calls the constructor of a class that it does not inherit from); `prf` follows that class's forward. It needs a head
width that is a power of two, and adds 1e-6 to the denominator; here nothing is added.

Shapes: K pack, B batch, T tokens, D width, H heads, d_h = D/H head width, m features.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.nn.kernels.hadamard import hadamard, hadamard_cost
from ablate.nn.kernels.random_features import fourier, log_positive, scaled
from ablate.nn.pack import normal
from ablate.nn.pack.feature_attention import FeatureAttention, FeatureMap, feature_attention_cost, state_size
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext
from ablate.spec.mixer import MixerSpec


class FastFoodSpec(MixerSpec):
    """Learned kernel by FastFood's structured projection, all its diagonals learned (FastFood-RKS, FastFood-PRF)."""

    source = "arXiv:2110.08323 FastFood-RKS and FastFood-PRF"
    complexity = "Ld²/H (features Ld·log d)"
    uses_heads = True
    relative_positions = frozenset({"query_key"})
    any_head_width = True

    kind: Literal["fastfood"] = "fastfood"
    form: Literal["rks", "prf"] = "rks"
    """`rks`: random kitchen sinks (cosines and sines); `prf`: positive random features (exponentials)."""

    def build(self, context: LayerContext) -> FeatureAttention:
        features = FourierFastFood if self.form == "rks" else PositiveFastFood
        return FeatureAttention(context, features(context.pack, context.head_width))

    def cache(self, context: LayerContext, length: int) -> int:
        """The state and the sum of features."""
        n = _power_of_two(context.head_width)
        return state_size(context, 2 * n + 1 if self.form == "rks" else n)

    def cost(self, context: LayerContext, length: int) -> Cost:
        d_h = context.head_width
        n = _power_of_two(d_h)
        projected = Cost(multiplications=d_h + 4 * n, activations=4 * n) + hadamard_cost(n) * 2
        diagonals = Cost(parameters=3 * n)
        if self.form == "rks":
            # Cosines and sines are counted with the exponentials.
            feature = projected + Cost(multiplications=2 * n, exponentiations=2 * n, activations=n)
            return feature_attention_cost(context, length, 2 * n + 1, feature, logarithmic=False) + diagonals
        feature = projected + Cost(multiplications=d_h, additions=d_h - 1 + 2 * n, exponentiations=n, activations=d_h)
        return feature_attention_cost(context, length, n, feature, logarithmic=True) + diagonals


def _power_of_two(width: int) -> int:
    """The smallest power of two that is at least `width`."""
    return 1 << (width - 1).bit_length()


def _permutation(values: Tensor, generator: torch.Generator) -> Tensor:
    return values.copy_(torch.randperm(len(values), generator=generator))


class _Projection(FeatureMap):
    """V·x = S·H·G·Π·H·B·x/√n."""

    scaling: Tensor
    gaussian: Tensor
    binary: Tensor
    permutation: Tensor

    def __init__(self, pack: int, width: int) -> None:
        super().__init__(pack)
        n = _power_of_two(width)
        for name in ("scaling", "gaussian", "binary"):
            self.declare(name, (n,), normal(1 / math.sqrt(n)))
        self.declare("permutation", (n,), _permutation, trainable=False)

    def project(self, x: Tensor) -> Tensor:
        """[K, B, H, T, d_h] to V·x, [K, B, H, T, n]."""
        n = self.scaling.shape[-1]
        s, g, b = (diagonal.view(self.pack, 1, 1, 1, n) for diagonal in (self.scaling, self.gaussian, self.binary))
        mixed = hadamard(F.pad(x, (0, n - x.shape[-1])) * b)
        order = self.permutation.long().view(self.pack, 1, 1, 1, n).expand_as(mixed)
        return s * hadamard(mixed.gather(-1, order) * g) / math.sqrt(n)


class FourierFastFood(_Projection):
    """φ(x) = √(1/n)·[cos V·x, sin V·x] ⊕ 1."""

    logarithmic = False

    def forward(self, x: Tensor) -> Tensor:
        """[K, B, H, T, d_h] to [K, B, H, T, 2n + 1]."""
        u = self.project(scaled(x))
        return fourier(u, 1 / math.sqrt(u.shape[-1]))


class PositiveFastFood(_Projection):
    """φ(x) = exp(V·x - ‖x‖²)/√n, given as its logarithm."""

    logarithmic = True

    def forward(self, x: Tensor) -> Tensor:
        """[K, B, H, T, d_h] to log φ, [K, B, H, T, n]."""
        x = scaled(x)
        return log_positive(self.project(x), x, weight=1.0)

"""Learned kernel, FastFood: φ-attention whose projection is a product of diagonal and Hadamard matrices.

y_t = φ(q_t)·Σ_s φ(k_s)ᵀ·v_s / (φ(q_t)·Σ_s φ(k_s)ᵀ), queries and keys scaled by d_h^(-1/4), and
V·x = S·H·G·Π·H·B·x/√n: S, G, B learned diagonals, H the Hadamard matrix (1 and -1), Π a random permutation;
`rks` (FastFood-RKS): φ(x) = √(1/n)·[cos V·x, sin V·x] ⊕ 1, m = 2n + 1;
`prf` (FastFood-PRF): φ(x) = exp(V·x - ‖x‖²)/√n, m = n.
n is d_h rounded up to a power of two, with x zero-padded to it, as in FastFood (arXiv:1408.3060).

- On Learning the Transformer Kernel (arXiv:2110.08323); https://arxiv.org/abs/2110.08323

The equations and the initial values (S, G, B ~ N(0, 1/n), one of each for all heads) are those of the authors'
released code, in the setting that learns all three. Departures: that code redraws Π in every forward pass, also in
evaluation; here it is drawn once, from the member's seed. Its class of positive features cannot be instantiated (it
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

from ablate.nn.kernels.random_features import (
    LARGEST_PRODUCT,
    hadamard,
    hadamard_cost,
    kernel_cost,
    kernel_features,
    project_vectors,
)
from ablate.nn.pack import normal
from ablate.nn.pack.attention import FeatureMap, FeatureMixerSpec
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext


class FastFoodSpec(FeatureMixerSpec):
    """Learned kernel by FastFood's structured projection, all its diagonals learned (FastFood-RKS, FastFood-PRF)."""

    source = "arXiv:2110.08323 FastFood-RKS and FastFood-PRF"
    complexity = "Ld²/H (features Ld·log d)"

    kind: Literal["fastfood"] = "fastfood"
    form: Literal["rks", "prf"] = "rks"
    """`rks`: random kitchen sinks (cosines and sines); `prf`: positive random features (exponentials)."""

    @property
    def logarithmic(self) -> bool:
        return self.form == "prf"

    def feature_map(self, context: LayerContext) -> FeatureMap:
        return FastFoodFeatures(context.pack, context.head_width, logarithmic=self.logarithmic)

    def feature_count(self, context: LayerContext) -> int:
        n = _power_of_two(context.head_width)
        return 2 * n + 1 if self.form == "rks" else n

    def feature_cost(self, context: LayerContext) -> Cost:
        d_h = context.head_width
        n = _power_of_two(d_h)
        if n > LARGEST_PRODUCT:
            projected = _factors_cost(n) + Cost(activations=4 * n)
        else:
            projected = Cost(multiplications=d_h * n, additions=(d_h - 1) * n, activations=d_h)
        return projected + kernel_cost(d_h, n, logarithmic=self.logarithmic)

    def cost_once(self, context: LayerContext) -> Cost:
        d_h = context.head_width
        n = _power_of_two(d_h)
        diagonals = Cost(parameters=3 * n)
        return diagonals if n > LARGEST_PRODUCT else diagonals + _factors_cost(n) * d_h + Cost(activations=4 * n * d_h)


def _factors_cost(n: int) -> Cost:
    """Cost of V·x factor by factor."""
    return Cost(multiplications=4 * n) + hadamard_cost(n) * 2


def _power_of_two(width: int) -> int:
    """The smallest power of two that is at least `width`."""
    return 1 << (width - 1).bit_length()


def _permutation(values: Tensor, generator: torch.Generator) -> Tensor:
    return values.copy_(torch.randperm(len(values), generator=generator))


class FastFoodFeatures(FeatureMap):
    """φ(x) = √(1/n)·[cos V·x, sin V·x] ⊕ 1, or log φ of φ(x) = exp(V·x - ‖x‖²)/√n, with V = S·H·G·Π·H·B/√n.

    Up to width 256 and for many vectors, V is computed once and applied as one matmul.
    """

    scaling: Tensor
    gaussian: Tensor
    binary: Tensor
    permutation: Tensor

    def __init__(self, pack: int, width: int, *, logarithmic: bool) -> None:
        super().__init__(pack)
        self.logarithmic = logarithmic
        n = _power_of_two(width)
        for name in ("scaling", "gaussian", "binary"):
            self.declare(name, (n,), normal(1 / math.sqrt(n)))
        self.declare("permutation", (n,), _permutation, trainable=False)

    def forward(self, *xs: Tensor) -> tuple[Tensor, ...]:
        """Each [K, B, H, T, d_h] to [K, B, H, T, 2n + 1], or to [K, B, H, T, n]."""
        us = self.project(*xs)
        return tuple(kernel_features(u, x, logarithmic=self.logarithmic) for u, x in zip(us, xs, strict=True))

    def project(self, *xs: Tensor) -> tuple[Tensor, ...]:
        """Each [K, B, H, T, d_h] to V·x/d_h^¼, [K, B, H, T, n]."""
        n, width = self.scaling.shape[-1], xs[0].shape[-1]
        if n > LARGEST_PRODUCT or sum(x[0, ..., 0].numel() for x in xs) < n:
            return tuple(self._through_factors(x) for x in xs)
        unit = torch.eye(width, dtype=self.scaling.dtype, device=self.scaling.device)
        turned = self._through_factors(unit.expand(self.pack, 1, 1, -1, -1))  # Vᵀ/d_h^¼, [K, 1, 1, d_h, n]
        return tuple(project_vectors(x, turned[:, 0, 0].mT) for x in xs)

    def _through_factors(self, x: Tensor) -> Tensor:
        """`project`, factor by factor."""
        n, width = self.scaling.shape[-1], x.shape[-1]
        s, g, b = (diagonal.view(self.pack, 1, 1, 1, n) for diagonal in (self.scaling, self.gaussian, self.binary))
        mixed = hadamard(F.pad(x, (0, n - width)) * b)
        order = self.permutation.long().view(self.pack, 1, 1, 1, n).expand_as(mixed)
        turned: Tensor = hadamard(mixed.gather(-1, order) * g)
        return turned * (s / math.sqrt(n * math.sqrt(width)))

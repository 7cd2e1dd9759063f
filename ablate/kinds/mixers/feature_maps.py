"""φ-attention: y_t = φ(q_t)·Σ_s φ(k_s)ᵀ·v_s / (φ(q_t)·Σ_s φ(k_s)ᵀ), over all s, or causal over s ≤ t.

`linear`: φ(x) = elu(x) + 1.

- Transformers are RNNs (arXiv:2006.16236), eqs 5, 7 and 9 to 12; https://arxiv.org/abs/2006.16236

Other implementations differ: the authors' library adds ε = 1e-6 to the denominator; Long Range Arena's version ignores
padding. Here padded keys are in neither sum, and nothing is added.

`performer`: φ approximates the softmax kernel by positive orthogonal random features (FAVOR+).

`softmax`: φ(x) = exp(ωᵀx' - ‖x'‖²/2)/√m, x' = x/d_h^¼, so that E[φ(q)·φ(k)] = exp(qᵀk/√d_h);
`relu`: φ(x) = max(ωᵀx, 0)/√m + 1e-3.
The m directions ω are Gaussian vectors, orthogonal to each other in blocks of d_h.

- Rethinking Attention with Performers (arXiv:2009.14794), Lemma 1 and §2; https://arxiv.org/abs/2009.14794

Other implementations differ. Google's code subtracts the largest key of the whole sequence and then adds a small ε to
the softmax features, so that later tokens change a causal model by more than rounding; here nothing is added, and what
is subtracted cancels exactly (`nn.kernels.linear_attention`: in causal models the largest key so far). It redraws ω
periodically; here ω is drawn once, from the member's seed, and shared by all heads. Long Range Arena's Performer has
ReLU features without projection.

`fastfood`: a learned kernel, whose projection is a product of diagonal and Hadamard matrices.

Queries and keys are scaled by d_h^(-1/4), and
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
from pydantic import Field
from torch import Tensor

from ablate.nn.kernels.random_features import (
    LARGEST_PRODUCT,
    hadamard,
    hadamard_cost,
    kernel_cost,
    kernel_features,
    log_positive,
    orthogonal_directions,
    project_vectors,
    scale_vectors,
)
from ablate.nn.pack import normal
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

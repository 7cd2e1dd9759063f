"""Extractors: a causal convolution as long as the context instead of self-attention, times an adjustment.

e_i = Σ_{j≤i} x_j·W_{i-j+1}, then a_i = (x_i·W_adj) ∘ e_i and y_i = a_i·W_out. The four types differ in W:

- SHE (super high-performance, eqs 23 to 25): W_k a matrix d x d for each lag;
- HE (higher-performance, eqs 27 and 28): a vector w_k for each lag (e_i = Σ x'_j ∘ w_{i-j+1}) after a map X' = X·W_in;
- WE (worthwhile, eq. 26): a vector w_k for each lag;
- ME (minimalist, eq. 29): a scalar w_k for each lag, neither adjustment nor output projection.

k = i-j+1 is the lag plus one; row k-1 of the weights here is w_k. No softmax, no biases, no heads. The paper starts all
weights from N(0, 0.01²): `init_std: 0.01` of the model.

- Attention Is Not All You Need Anymore (arXiv:2308.07661); https://arxiv.org/abs/2308.07661

Shapes: K pack, B batch, T tokens, D width, L context length (lags that have weights).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor, nn

from ablate.nn.kernels import convolution
from ablate.nn.pack import Linear, Packed, State, linear, normal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext, Role
from ablate.spec.sublayers import MixerSpec

_CONVOLUTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "she": convolution.full,
    "he": convolution.depthwise,
    "we": convolution.depthwise,
    "me": convolution.shared,
}

_SUMS = {"she": "kbji,kjio->kbo", "he": "kbjd,kjd->kbd", "we": "kbjd,kjd->kbd", "me": "kbjd,kj->kbd"}
"""The sum over the tokens j of a window and the weights, both from the longest lag to the shortest."""


class ExtractorSpec(MixerSpec):
    """A causal convolution as long as the context, with an adjustment and an output projection."""

    source = "arXiv:2308.07661 eqs 23-29"
    complexity = "L²d² for `she`, L²d for the others, as the paper counts; L log L by Fourier transform"
    bidirectional_form = False
    length_field = "context"

    kind: Literal["extractor"] = "extractor"
    type: Literal["she", "he", "we", "me"] = "she"
    """Weights of a lag: `she` a matrix; `he` a vector, after an input projection; `we` a vector; `me` a scalar."""
    adjustment: bool | None = None
    """Whether e is multiplied by X·W_adj (eq. 24); unless set, for all types but `me`."""
    output: bool | None = None
    """Whether there is an output projection W_out (eq. 25); unless set, for all types but `me`."""
    context: int | None = Field(default=None, ge=1)
    """L, the number of lags that have weights; unless set, the longest input."""

    @field_validator("adjustment", "output")
    @classmethod
    def _default_is_none(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        # A value that is written at its default has the hash of one that is left out.
        return None if value is (info.data.get("type") != "me") else value

    @property
    def adjusts(self) -> bool:
        """`adjustment`, or the paper's choice where it is not set."""
        return self.type != "me" if self.adjustment is None else self.adjustment

    @property
    def maps_output(self) -> bool:
        """`output`, or the paper's choice where it is not set."""
        return self.type != "me" if self.output is None else self.output

    def lag_shape(self, width: int) -> tuple[int, ...]:
        """Shape of the weights of one lag."""
        return {"she": (width, width), "he": (width,), "we": (width,), "me": ()}[self.type]

    def longest_input(self, context: LayerContext) -> int:
        """L, the number of lags that have weights."""
        return self.context or context.context

    def build(self, context: LayerContext) -> Extractor:
        return Extractor(self, context)

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        weights = {"she": "Σ xⱼ Wᵢ₋ⱼ₊₁", "he": "Σ xⱼ ∘ wᵢ₋ⱼ₊₁", "we": "Σ xⱼ ∘ wᵢ₋ⱼ₊₁", "me": "Σ xⱼ wᵢ₋ⱼ₊₁ (scalars)"}
        rows = [
            (("input", "W_in"),) if self.type == "he" else (),
            (("sum", weights[self.type]), *([("adjustment", "W_adj")] if self.adjusts else [])),
            (("product", "∘"),) if self.adjusts else (),
            (("output", "W_out"),) if self.maps_output else (),
        ]
        return tuple(row for row in rows if row)

    def cost(self, context: LayerContext, length: int) -> Cost:
        """Table 3 of the paper, for a direct convolution.

        Where the module convolves by Fourier transform, it needs fewer operations than counted here.
        """
        d = context.width
        pairs = length * (length + 1) // 2
        each = d * d if self.type == "she" else d
        total = Cost(
            parameters=self.longest_input(context) * math.prod(self.lag_shape(d)),
            multiplications=pairs * each,
            additions=pairs * each - length * d,
            activations=length * d,
        )
        if self.type == "he":
            total += linear_cost(length, d, d)
        if self.adjusts:
            # The adjustment reads the mixer's input, which is already kept; its product keeps both factors.
            total += linear_cost(length, d, d) + Cost(multiplications=length * d, activations=length * d)
        if self.maps_output:
            total += linear_cost(length, d, d)
        return total


class Extractor(Packed):
    """The module of `ExtractorSpec`."""

    weight: Tensor

    def __init__(self, spec: ExtractorSpec, context: LayerContext) -> None:
        super().__init__(context.pack)

        def square(role: Role = "hidden") -> Linear:
            return linear(context, context.width, context.width, role=role)

        self.lags = spec.longest_input(context)
        self.convolve = _CONVOLUTIONS[spec.type]
        self.sums = _SUMS[spec.type]
        self.declare("weight", (self.lags, *spec.lag_shape(context.width)), normal(context.init_std), decay=True)
        self.input = square() if spec.type == "he" else nn.Identity()
        self.adjustment = square() if spec.adjusts else None
        self.output = square("output") if spec.maps_output else nn.Identity()

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        if padding is not None:
            x = x * padding[..., None]
        return self._adjusted(x, self.convolve(self.input(x), self.weight))

    def step(self, x: Tensor, position: int, state: State) -> tuple[Tensor, State]:
        """The state: the inputs of the convolution."""
        window = torch.cat([*state, self.input(x)], 2)
        extracted = torch.einsum(self.sums, window, self.weight[:, : position + 1].flip(1))
        return self._adjusted(x, extracted.unsqueeze(2)), (window,)

    def _adjusted(self, x: Tensor, extracted: Tensor) -> Tensor:
        if self.adjustment is not None:
            extracted = self.adjustment(x) * extracted
        y: Tensor = self.output(extracted)
        return y

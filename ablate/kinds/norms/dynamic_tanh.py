"""DyT, a layer in the place of a norm: y = w ∘ tanh(α·x) + b; α is a trained scalar, w starts at 1 and b at 0.

- Transformers without Normalization (arXiv:2503.10622), eq. 1; https://arxiv.org/abs/2503.10622

Shapes: K pack, D width.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from ablate.nn.pack import Packed, constant, zeros
from ablate.spec.cost import Cost
from ablate.spec.norm import NormSpec


class DynamicTanhSpec(NormSpec):
    """DyT: w ∘ tanh(αx) + b."""

    source = "arXiv:2503.10622 eq. 1"

    kind: Literal["dynamic_tanh"] = "dynamic_tanh"
    alpha: float = Field(default=0.5, gt=0)
    """Initial value of α. For language models the paper takes 0.8 before the mixer and 0.2 elsewhere (7B)."""
    bias: bool = True
    """Whether there is a b; the paper's language models have none."""

    def build(self, pack: int, width: int) -> DynamicTanh:
        return DynamicTanh(pack, width, self.alpha, bias=self.bias)

    def cost(self, width: int, length: int) -> Cost:
        """A tanh is an exponential, two sums and a quotient. Kept are input and tanh."""
        elements = length * width
        return Cost(
            parameters=1 + (1 + self.bias) * width,
            multiplications=2 * elements,
            additions=(2 + self.bias) * elements,
            divisions=elements,
            exponentiations=elements,
            activations=2 * elements,
        )

    def label(self) -> str:
        return "DyT"


class DynamicTanh(Packed):
    """The module of `DynamicTanhSpec`."""

    alpha: Tensor
    weight: Tensor
    bias: Tensor | None

    def __init__(self, pack: int, width: int, alpha: float, *, bias: bool) -> None:
        super().__init__(pack)
        self.declare("alpha", (1,), constant(alpha))
        self.declare("weight", (width,), constant(1.0))
        if bias:
            self.declare("bias", (width,), zeros)
        else:
            self.bias = None

    def forward(self, x: Tensor) -> Tensor:
        """[K, ..., D] to the same."""
        y = (x * self._along(self.alpha, x)).tanh() * self._along(self.weight, x)
        return y if self.bias is None else y + self._along(self.bias, x)

    @staticmethod
    def _along(values: Tensor, x: Tensor) -> Tensor:
        return values.view(values.shape[0], *[1] * (x.dim() - 2), -1)

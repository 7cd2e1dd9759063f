"""DyT, a replacement for a norm: y = w ∘ tanh(α·x) + b; α is a trained scalar, w starts at 1 and b at 0.

- Transformers without Normalization (arXiv:2503.10622), eq. 1; https://arxiv.org/abs/2503.10622

Shapes: K pack, D width.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from ablate.nn.kernels.rms_norm import along
from ablate.nn.pack import Packed, constant, zeros
from ablate.spec.cost import Cost
from ablate.spec.sublayers import NormSpec


class DynamicTanhSpec(NormSpec):
    """DyT: w ∘ tanh(αx) + b."""

    source = "arXiv:2503.10622 eq. 1"

    kind: Literal["dynamic_tanh"] = "dynamic_tanh"
    alpha: float = Field(default=0.5, gt=0)
    """Initial value of α. For its 7B language model the paper uses 0.8 before the mixer and 0.2 elsewhere."""
    bias: bool = True
    """Whether there is a b; the paper's language models have none."""

    def build(self, pack: int, width: int) -> DynamicTanh:
        return DynamicTanh(pack, width, self.alpha, bias=self.bias)

    def cost(self, width: int, length: int) -> Cost:
        """A tanh counts as an exponential, two additions and a division. Kept: the input and the tanh."""
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
        y = (x * along(self.alpha, x)).tanh() * along(self.weight, x)
        return y if self.bias is None else y + along(self.bias, x)

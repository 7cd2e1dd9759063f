"""A pointwise function instead of a norm: y = w ∘ f(α·x + s) + b, f = tanh (DyT) or erf (Derf).

α and s are trained scalars, w starts at 1, s and b at 0; DyT has no s.

- Transformers without Normalization (arXiv:2503.10622), eq. 1; https://arxiv.org/abs/2503.10622
- Stronger Normalization-Free Transformers (arXiv:2512.10938), eq. 1; https://arxiv.org/abs/2512.10938
- https://github.com/jiachenzhu/DyT and https://github.com/zlab-princeton/Derf, whose modules were run beside this one
  in double precision: outputs and gradients are the same numbers. Their language models multiply embeddings by a
  trained scalar, √D at the start

Shapes: K pack, D width.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from ablate.nn.pack import Packed, constant, zeros
from ablate.nn.pack.layers import along
from ablate.spec.cost import Cost
from ablate.spec.sublayers import NormSpec


class DynamicTanhSpec(NormSpec):
    """DyT and Derf: w ∘ tanh(αx) + b, or w ∘ erf(αx + s) + b."""

    source = "arXiv:2503.10622 eq. 1; arXiv:2512.10938 eq. 1"

    kind: Literal["dynamic_tanh"] = "dynamic_tanh"
    alpha: float = Field(default=0.5, gt=0)
    """Initial value of α. For its 7B language model the paper uses 0.8 before the mixer and 0.2 elsewhere."""
    bias: bool = True
    """Whether there is a b; the paper's language models have none."""
    function: Literal["tanh", "erf"] = "tanh"
    """f."""
    shift: bool = False
    """Whether there is an s; Derf has one."""

    def build(self, pack: int, width: int) -> DynamicTanh:
        return DynamicTanh(pack, width, self)

    def cost(self, width: int, length: int) -> Cost:
        """f counts as an exponential, two additions and a division. Kept: the input, f, and the argument of erf."""
        elements = length * width
        return Cost(
            parameters=1 + self.shift + (1 + self.bias) * width,
            multiplications=2 * elements,
            additions=(2 + self.bias + self.shift) * elements,
            divisions=elements,
            exponentiations=elements,
            activations=(2 + (self.function == "erf")) * elements,
        )

    def label(self) -> str:
        return "DyT" if self.function == "tanh" else "Derf"


class DynamicTanh(Packed):
    """The module of `DynamicTanhSpec`."""

    alpha: Tensor
    weight: Tensor
    bias: Tensor | None
    shift: Tensor | None

    def __init__(self, pack: int, width: int, spec: DynamicTanhSpec) -> None:
        super().__init__(pack)
        self.function = torch.tanh if spec.function == "tanh" else torch.erf
        self.declare("alpha", (1,), constant(spec.alpha))
        self.declare("weight", (width,), constant(1.0))
        if spec.shift:
            self.declare("shift", (1,), zeros)
        else:
            self.shift = None
        if spec.bias:
            self.declare("bias", (width,), zeros)
        else:
            self.bias = None

    def forward(self, x: Tensor) -> Tensor:
        """[K, ..., D] to the same."""
        x = x * along(self.alpha, x)
        y = self.function(x if self.shift is None else x + along(self.shift, x)) * along(self.weight, x)
        return y if self.bias is None else y + along(self.bias, x)

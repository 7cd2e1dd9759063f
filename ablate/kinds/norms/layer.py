"""LayerNorm: y = (x - mean x)·g/√(var x + ε) + b, g and b trainable, from 1 and 0.

- Layer Normalization (arXiv:1607.06450), eqs 3 and 4; https://arxiv.org/abs/1607.06450
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ablate.nn.pack import LayerNorm
from ablate.spec.cost import Cost
from ablate.spec.norm import NormSpec


class LayerNormSpec(NormSpec):
    """LayerNorm: (x - mean x)·g/√(var x + ε) + b."""

    source = "arXiv:1607.06450 eqs 3, 4"

    kind: Literal["layer"] = "layer"
    eps: float = Field(default=1e-8, gt=0)
    """ε, added under the root."""

    def build(self, pack: int, width: int) -> LayerNorm:
        """See `NormSpec.build`."""
        return LayerNorm(pack, width, self.eps)

    def cost(self, width: int, length: int) -> Cost:
        """See `NormSpec.cost`; kept are what goes in, what the gain multiplies and each vector's mean and spread."""
        elements = length * width
        return Cost(
            parameters=2 * width,
            multiplications=2 * elements + length,
            additions=elements,
            divisions=elements,
            activations=2 * elements + 2 * length,
        )

    def label(self) -> str:
        """See `NormSpec.label`."""
        return "LayerNorm"

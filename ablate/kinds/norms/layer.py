"""LayerNorm: y = (x - mean x)·g/√(var x + ε) + b; g and b are optional, trained, and initially 1 and 0.

- Layer Normalization (arXiv:1607.06450), eqs 3 and 4; https://arxiv.org/abs/1607.06450
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ablate.nn.pack import LayerNorm
from ablate.spec.cost import Cost
from ablate.spec.sublayers import NormSpec


class LayerNormSpec(NormSpec):
    """LayerNorm: (x - mean x)·g/√(var x + ε) + b."""

    source = "arXiv:1607.06450 eqs 3, 4"

    kind: Literal["layer"] = "layer"
    eps: float = Field(default=1e-8, gt=0)
    """ε, added under the root."""
    gain: bool = True
    """Whether there is a g."""
    bias: bool = True
    """Whether there is a b."""

    def build(self, pack: int, width: int) -> LayerNorm:
        return LayerNorm(pack, width, self.eps, gain=self.gain, bias=self.bias)

    def cost(self, width: int, length: int) -> Cost:
        """Sums of inputs, of squares, and the mean taken off. Kept: inputs of norm and gain, mean and deviation."""
        elements = length * width
        return Cost(
            parameters=(self.gain + self.bias) * width,
            multiplications=(1 + self.gain) * elements + 2 * length,
            additions=(3 + self.bias) * elements - length,
            divisions=elements,
            activations=(1 + self.gain) * elements + 2 * length,
        )

    def label(self) -> str:
        left_out = [name for name, there in (("gain", self.gain), ("bias", self.bias)) if not there]
        return ", ".join(["LayerNorm", *(f"no {name}" for name in left_out)])

"""RMSNorm: y = x·g/√(mean x² + ε); g is optional, trained, and initially 1.

With `eps_outside` y = x·g/(√(mean x²) + ε), as in the code of "Simplifying Transformer Blocks".

- Root Mean Square Layer Normalization (arXiv:1910.07467), eq. 4; https://arxiv.org/abs/1910.07467
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ablate.nn.pack import RMSNorm
from ablate.spec.cost import Cost
from ablate.spec.sublayers import NormSpec


class RMSNormSpec(NormSpec):
    """RMSNorm: x·g/√(mean x² + ε)."""

    source = "arXiv:1910.07467 eq. 4"

    kind: Literal["rms"] = "rms"
    eps: float = Field(default=1e-8, gt=0)
    """ε, added under the root."""
    gain: bool = True
    """Whether there is a g."""
    eps_outside: bool = False
    """Whether ε is added to the root, not to the mean square under it."""

    def build(self, pack: int, width: int) -> RMSNorm:
        return RMSNorm(pack, width, self.eps, gain=self.gain, eps_outside=self.eps_outside)

    def cost(self, width: int, length: int) -> Cost:
        """Kept: the normalised vectors (without a gain, the input), and the root mean square of each vector."""
        elements = length * width
        return Cost(
            parameters=self.gain * width,
            multiplications=(1 + self.gain) * elements + length,
            additions=elements,
            divisions=elements,
            activations=(1 + (self.gain and self.eps_outside)) * elements + length,
        )

    def label(self) -> str:
        return "RMSNorm" if self.gain else "RMSNorm, no gain"

"""RMSNorm: y = x·g/√(mean x² + ε); g is optional, trained, and initially 1.

With `eps_outside` y = x·g/(√(mean x²) + ε), as in the code of "Simplifying Transformer Blocks". With `gate_rank` r y is
multiplied by a gate of its own channels, σ(W_u·SiLU(W_d·y)), W_d in R^(r×D) and W_u in R^(D×r) (GatedNorm).

- Root Mean Square Layer Normalization (arXiv:1910.07467), eq. 4; https://arxiv.org/abs/1910.07467
- GatedNorm: the class of that name of `marin-community/marin` (experiments/grug/fast_track/model.py, rank 128, matrices
  from N(0, 1/(4D)) cut at three standard deviations, which is not done here), whose docstring cites arXiv:2601.22966;
  the paper itself was not read. Its `RMSNorm` and `GatedNorm` were run beside it in double precision: outputs differ by
  1e-15, gradients by 4e-15
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ablate.nn.pack import Linear, RMSNorm, normal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.sublayers import NormSpec


class RMSNormSpec(NormSpec):
    """RMSNorm: x·g/√(mean x² + ε), with or without a gate of its channels (GatedNorm)."""

    source = "arXiv:1910.07467 eq. 4"
    value_fields = frozenset({"gate_std"})

    kind: Literal["rms"] = "rms"
    eps: float = Field(default=1e-8, gt=0)
    """ε, added under the root."""
    gain: bool = True
    """Whether there is a g."""
    eps_outside: bool = False
    """Whether ε is added to the root, not to the mean square under it."""
    gate_rank: int | None = Field(default=None, ge=1)
    """r, rank of the gate of the normalised channels; unless set, there is no gate."""
    gate_std: float = Field(default=0.02, ge=0)
    """Standard deviation of the gate's matrices before the first step; Marin's is 0.5/√D."""

    def build(self, pack: int, width: int) -> nn.Module:
        norm = RMSNorm(pack, width, self.eps, gain=self.gain, eps_outside=self.eps_outside)
        return norm if self.gate_rank is None else GatedNorm(norm, width, self.gate_rank, self.gate_std)

    def cost(self, width: int, length: int) -> Cost:
        """Kept: the normalised vectors (without a gain, the input), and the root mean square of each vector.

        Of a gate: its input, the input and result of SiLU, and the result of σ.
        """
        elements = length * width
        norm = Cost(
            parameters=self.gain * width,
            multiplications=(1 + self.gain) * elements + length,
            additions=elements,
            divisions=elements,
            activations=(1 + (self.gain and self.eps_outside)) * elements + length,
        )
        if self.gate_rank is None:
            return norm
        inner = length * self.gate_rank
        pointwise = Cost(
            multiplications=elements + inner,
            additions=elements + inner,
            divisions=elements + inner,
            exponentiations=elements + inner,
            activations=elements + inner,
        )
        return (
            norm + linear_cost(length, width, self.gate_rank) + linear_cost(length, self.gate_rank, width) + pointwise
        )

    def label(self) -> str:
        made = "RMSNorm" if self.gain else "RMSNorm, no gain"
        return made if self.gate_rank is None else f"{made}, gated"


class GatedNorm(nn.Module):
    """A norm whose result y is multiplied by σ(W_u·SiLU(W_d·y))."""

    def __init__(self, norm: RMSNorm, width: int, rank: int, std: float) -> None:
        super().__init__()
        self.norm = norm
        self.down = Linear(norm.pack, width, rank, initial=normal(std))
        self.up = Linear(norm.pack, rank, width, initial=normal(std))

    def forward(self, x: Tensor) -> Tensor:
        """[K, ..., D] to the same."""
        y: Tensor = self.norm(x)
        return y * torch.sigmoid(self.up(F.silu(self.down(y))))

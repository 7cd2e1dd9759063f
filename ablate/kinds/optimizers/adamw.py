"""`adamw`: torch's AdamW."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from ablate.kinds.optimizers.adam import Beta, moments
from ablate.kinds.optimizers.uncompiled import uncompiled
from ablate.spec.optimizer import OptimizerSpec
from ablate.spec.parameter import ParameterInfo

AdamW = uncompiled(torch.optim.AdamW)


class AdamWSpec(OptimizerSpec):
    """Adam with decoupled weight decay.

    m ← β₁m + (1-β₁)g, v ← β₂v + (1-β₂)g², θ ← (1 - ηλ)θ - η m̂ / (√v̂ + ε), m̂ and v̂ corrected for their start at 0.
    """

    kind: Literal["adamw"] = "adamw"
    value_fields = frozenset({"lr", "clip", "rates", "weight_decay", "betas", "eps"})
    source = "arXiv:1711.05101, Algorithm 2"
    elementwise = True
    adaptive = True
    weight_decay: float = Field(default=0.0, ge=0)
    """λ, decoupled weight decay of matrices and embeddings."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    """β₁ and β₂, decay of the two moment averages."""
    eps: float = Field(default=1e-8, gt=0)
    """ε, added to the root of the second moment."""

    def options(self, parameter: ParameterInfo) -> Mapping[str, Any]:
        """Rate, decay (0 where the parameter does not decay), betas and epsilon."""
        decay = self.weight_decay if parameter.decays else 0.0
        return {"lr": self.lr, "weight_decay": decay, "betas": self.betas, "eps": self.eps}

    def state(self, tensor: Tensor, parameter: ParameterInfo) -> dict[str, Tensor]:
        """The two moments and the number of steps."""
        return moments(tensor)

    def build(self, groups: list[dict[str, Any]], *, capturable: bool) -> torch.optim.Optimizer:
        """Torch's fused AdamW."""
        made: torch.optim.Optimizer = AdamW(groups, fused=True, capturable=capturable)
        return made

    def state_bytes(self) -> int:
        """Two moments in single precision."""
        return 8

    def step_flops(self, parameters: int, width: int) -> float:
        """Moments 3 + 4, denominator 3, update 3, decay 1."""
        return 14.0 * parameters

"""`adam`: torch's Adam."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from ablate.kinds.optimizers import without_compile_guard
from ablate.spec.layer import ParameterInfo, ParameterRole, StepGrowth
from ablate.spec.optimizer import OptimizerSpec

Adam = without_compile_guard(torch.optim.Adam)

Beta = Annotated[float, Field(ge=0, lt=1)]


class AdamBaseSpec(OptimizerSpec, ABC):
    """Base of optimizers with the options and the state of Adam."""

    value_fields = frozenset({"lr", "clip", "rates", "weight_decay", "betas", "eps"})

    weight_decay: float = Field(default=0.0, ge=0)
    """λ, weight decay of matrices and embeddings: an L2 penalty in `adam`, decoupled in `adamw` and `soap`."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    """β₁ and β₂, decay of the two moment averages."""
    eps: float = Field(default=1e-8, gt=0)
    """ε, added to the root of the second moment."""

    def options(self, parameter: ParameterInfo) -> Mapping[str, Any]:
        """Rate, weight decay (0 where the parameter does not decay), betas and epsilon."""
        decay = self.weight_decay if parameter.decays else 0.0
        return {"lr": self.lr, "weight_decay": decay, "betas": self.betas, "eps": self.eps}

    def growth(self, role: ParameterRole) -> StepGrowth:
        """A step moves each entry by about η, and so a matrix by η times its width."""
        return StepGrowth(width=-1.0 if role == "matrix" else 0.0)

    def state(self, tensor: Tensor, parameter: ParameterInfo) -> dict[str, Tensor]:
        """The two moments and the number of steps."""
        return moments(tensor)

    def state_bytes(self) -> int:
        """Two moments in single precision."""
        return 8


class AdamSpec(AdamBaseSpec):
    """Adam; weight decay, if any, is an L2 penalty, whose gradient passes through the moments.

    g ← g + λθ, m ← β₁m + (1-β₁)g, v ← β₂v + (1-β₂)g², θ ← θ - η m̂ / (√v̂ + ε), with m̂ and v̂ corrected for their bias.
    """

    kind: Literal["adam"] = "adam"
    source = "arXiv:1412.6980, Algorithm 1"
    elementwise = True

    def build(self, groups: list[dict[str, Any]], *, capturable: bool) -> torch.optim.Optimizer:
        """Torch's fused Adam."""
        made: torch.optim.Optimizer = Adam(groups, fused=True, capturable=capturable)
        return made

    def step_flops(self, parameters: int, width: int) -> float:
        """Penalty 2, moments 3 + 4, denominator 3, update 3."""
        return 15.0 * parameters


def moments(tensor: Tensor) -> dict[str, Tensor]:
    """The state of Adam and AdamW before the first step, by torch's names."""
    step = torch.zeros((), device=tensor.device)
    return {"step": step, "exp_avg": torch.zeros_like(tensor), "exp_avg_sq": torch.zeros_like(tensor)}

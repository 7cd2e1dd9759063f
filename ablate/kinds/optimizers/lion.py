"""`lion`: the sign of an interpolated momentum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from ablate.kinds.optimizers import without_compile_guard
from ablate.spec.layer import ParameterInfo, ParameterRole, StepGrowth
from ablate.spec.optimizer import OptimizerSpec


class LionSpec(OptimizerSpec):
    """Lion: the sign of an interpolated momentum, with decoupled weight decay.

    θ ← (1 - ηλ)θ - η sign(β₁m + (1-β₁)g), m ← β₂m + (1-β₂)g. The paper uses rates 3 to 10 times smaller than AdamW's.
    """

    kind: Literal["lion"] = "lion"
    value_fields = frozenset({"lr", "clip", "rates", "weight_decay", "betas"})
    source = "arXiv:2302.06675, Algorithm 2"
    elementwise = True
    weight_decay: float = Field(default=0.0, ge=0)
    """λ, decoupled weight decay of matrices and embeddings."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.99)
    """β₁ of the update and β₂ of the momentum."""

    def options(self, parameter: ParameterInfo) -> Mapping[str, Any]:
        """Rate, decay (0 where the parameter does not decay) and betas."""
        decay = self.weight_decay if parameter.decays else 0.0
        return {"lr": self.lr, "weight_decay": decay, "betas": self.betas}

    def growth(self, role: ParameterRole) -> StepGrowth:
        """A step moves each entry by about η, and so a matrix by η times its width."""
        return StepGrowth(width=-1.0 if role == "matrix" else 0.0)

    def state(self, tensor: Tensor, parameter: ParameterInfo) -> dict[str, Tensor]:
        """The momentum."""
        return {"momentum": torch.zeros_like(tensor)}

    def build(self, groups: list[dict[str, Any]], *, capturable: bool) -> torch.optim.Optimizer:
        """`Lion`, which reads a rate on the device without synchronising."""
        made: torch.optim.Optimizer = without_compile_guard(Lion)(groups)
        return made

    def state_bytes(self) -> int:
        """The momentum in single precision."""
        return 4

    def step_flops(self, parameters: int, width: int) -> float:
        """Interpolation 3, sign 1, update 2, decay 1, momentum 3."""
        return 10.0 * parameters


class Lion(torch.optim.Optimizer):
    """The optimizer of `LionSpec`; torch has none."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, {})

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step of every parameter that has a gradient."""
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not moved:
                continue
            gradients = [parameter.grad for parameter in moved]
            momenta = [self.state[parameter]["momentum"] for parameter in moved]
            (first, second), rate = group["betas"], group["lr"]
            signs = torch._foreach_lerp(momenta, gradients, 1 - first)
            torch._foreach_sign_(signs)
            torch._foreach_mul_(signs, rate)
            torch._foreach_mul_(moved, 1 - rate * group["weight_decay"])
            torch._foreach_sub_(moved, signs)
            torch._foreach_lerp_(momenta, gradients, 1 - second)

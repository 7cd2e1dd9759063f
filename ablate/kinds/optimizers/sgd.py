"""`sgd`: torch's stochastic gradient descent, with momentum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from ablate.kinds.optimizers import without_compile_guard
from ablate.spec.base import refusal
from ablate.spec.layer import ParameterInfo, ParameterRole, StepGrowth
from ablate.spec.optimizer import OptimizerSpec

SGD = without_compile_guard(torch.optim.SGD)


class SGDSpec(OptimizerSpec):
    """Stochastic gradient descent, with momentum; weight decay, if any, is an L2 penalty.

    g ← g + λθ, b ← μb + g, θ ← θ - ηb; with Nesterov's momentum θ ← θ - η(g + μb).
    """

    kind: Literal["sgd"] = "sgd"
    value_fields = frozenset({"lr", "clip", "rates", "weight_decay", "momentum"})
    source = "Sutskever et al. 2013, Eq. 1 to 4, in the form of torch.optim.SGD"
    elementwise = True
    weight_decay: float = Field(default=0.0, ge=0)
    """λ, L2 penalty of matrices and embeddings."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """μ, decay of the sum of gradients; 0: no momentum and no state."""
    nesterov: bool = False
    """Whether the momentum is Nesterov's."""

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Self:
        if self.nesterov and self.momentum == 0:
            rule = "Nesterov's momentum needs a `momentum` above 0"
            raise refusal(("nesterov",), True, rule, "Set `momentum: 0.9`, or `nesterov: false`.")
        return self

    def structure(self) -> Any:
        """As any spec, and whether there is a momentum, on which the state depends."""
        return {**super().structure(), "momentum": self.momentum > 0}

    def options(self, parameter: ParameterInfo) -> Mapping[str, Any]:
        """Rate, penalty (0 where the parameter does not decay) and momentum."""
        decay = self.weight_decay if parameter.decays else 0.0
        return {"lr": self.lr, "weight_decay": decay, "momentum": self.momentum, "nesterov": self.nesterov}

    def growth(self, role: ParameterRole) -> StepGrowth:
        """Entries of a gradient are 1/m as large at m times the width (arXiv:2203.03466, Table 8).

        Holds where no gradient is longer than `clip`.
        """
        return StepGrowth(width=0.0 if role == "matrix" else 1.0, follows_gradient=True)

    def state(self, tensor: Tensor, parameter: ParameterInfo) -> dict[str, Tensor]:
        """The sum of gradients, if there is a momentum."""
        # Torch starts from the first gradient; without dampening, a sum that starts at 0 is the same.
        return {"momentum_buffer": torch.zeros_like(tensor)} if self.momentum else {}

    def build(self, groups: list[dict[str, Any]], *, capturable: bool) -> torch.optim.Optimizer:
        """Torch's fused SGD, which reads a rate on the device without synchronising."""
        made: torch.optim.Optimizer = SGD(groups, fused=True)
        return made

    def state_bytes(self) -> int:
        """The sum of gradients in single precision."""
        return 4 if self.momentum else 0

    def step_flops(self, parameters: int, width: int) -> float:
        """Penalty 2, update 2, momentum 2, Nesterov's step 2."""
        return (4.0 + 2.0 * (self.momentum > 0) + 2.0 * self.nesterov) * parameters

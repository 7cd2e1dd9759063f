"""Adam, and what differs from it in the weight decay or in a further average.

`adam`: torch's Adam.

`adamw`: torch's AdamW.

`ademamix`: AdamW with a second, slow average of the gradients.

- The AdEMAMix Optimizer (arXiv:2409.03137), Algorithm 1; https://arxiv.org/abs/2409.03137
- https://github.com/apple/ml-ademamix (`pytorch/ademamix.py`), which was run beside it: after 30 steps, 20 of warm-up,
  weights differ by 7e-16 in double precision
"""

from __future__ import annotations

import math
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


AdamW = without_compile_guard(torch.optim.AdamW)


class AdamWSpec(AdamBaseSpec):
    """Adam with decoupled weight decay.

    m ← β₁m + (1-β₁)g, v ← β₂v + (1-β₂)g², θ ← (1 - ηλ)θ - η m̂ / (√v̂ + ε), with m̂ and v̂ corrected for their bias.
    """

    kind: Literal["adamw"] = "adamw"
    source = "arXiv:1711.05101, Algorithm 2"
    elementwise = True

    def build(self, groups: list[dict[str, Any]], *, capturable: bool) -> torch.optim.Optimizer:
        """Torch's fused AdamW."""
        made: torch.optim.Optimizer = AdamW(groups, fused=True, capturable=capturable)
        return made

    def step_flops(self, parameters: int, width: int) -> float:
        """Moments 3 + 4, denominator 3, update 3, decay 1."""
        return 14.0 * parameters


class AdEMAMixSpec(AdamBaseSpec):
    """AdamW with a second, slow average of the gradients, which lets old gradients count.

    m₁ ← β₁m₁ + (1-β₁)g, m₂ ← β₃m₂ + (1-β₃)g, v ← β₂v + (1-β₂)g², θ ← (1-ηλ)θ - η (m̂₁ + αm₂)/(√v̂ + ε); m₁ and v are
    corrected for their start at 0, m₂ is not. In the first `slow_warmup` steps α rises linearly from 0 and β₃ from β₁,
    in equal steps of its half-life.
    """

    kind: Literal["ademamix"] = "ademamix"
    value_fields = AdamBaseSpec.value_fields | {"slow_beta", "alpha", "slow_warmup"}
    source = "arXiv:2409.03137, Algorithm 1"
    elementwise = True
    slow_beta: Beta = 0.9999
    """β₃, decay of the slow average."""
    alpha: float = Field(default=2.0, ge=0)
    """α, weight of the slow average; 2 in the authors' code, 5 to 10 in the paper."""
    slow_warmup: int = Field(default=0, ge=0)
    """T, steps in which α and β₃ rise; the paper uses those of the whole training run."""

    def options(self, parameter: ParameterInfo) -> Mapping[str, Any]:
        """As Adam's, with those of the slow average."""
        slow = {"slow_beta": self.slow_beta, "alpha": self.alpha, "slow_warmup": self.slow_warmup}
        return {**super().options(parameter), **slow}

    def state(self, tensor: Tensor, parameter: ParameterInfo) -> dict[str, Tensor]:
        """The number of steps, two averages of the gradients and one of their squares."""
        return {**moments(tensor), "exp_avg_slow": torch.zeros_like(tensor)}

    def build(self, groups: list[dict[str, Any]], *, capturable: bool) -> torch.optim.Optimizer:
        """`AdEMAMix`, which reads rates and steps on the device without synchronising."""
        made: torch.optim.Optimizer = without_compile_guard(AdEMAMix)(groups)
        return made

    def state_bytes(self) -> int:
        """Three averages in single precision."""
        return 12

    def step_flops(self, parameters: int, width: int) -> float:
        """Averages 3 + 3 + 4, denominator 3, update 5, decay 1."""
        return 19.0 * parameters


class AdEMAMix(torch.optim.Optimizer):
    """The optimizer of `AdEMAMixSpec`; torch has none."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, {})

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step of every parameter that has a gradient."""
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not moved:
                continue
            gradients = [parameter.grad for parameter in moved]
            steps, fast, slow, squares = (
                [self.state[parameter][name] for parameter in moved]
                for name in ("step", "exp_avg", "exp_avg_slow", "exp_avg_sq")
            )
            (first, second), rate = group["betas"], group["lr"]
            torch._foreach_add_(steps, 1)
            step = torch.stack(steps).double()
            alpha, third = _slow(step, first, group)
            torch._foreach_lerp_(fast, gradients, 1 - first)
            torch._foreach_mul_(squares, second)
            torch._foreach_addcmul_(squares, gradients, gradients, 1 - second)
            for average, gradient, beta in zip(slow, gradients, third.unbind(), strict=True):
                average.lerp_(gradient, (1 - beta).to(average.dtype))
            roots = torch._foreach_sqrt(squares)
            torch._foreach_div_(roots, (1 - second**step).sqrt().to(roots[0].dtype).unbind())
            torch._foreach_add_(roots, group["eps"])
            updates = torch._foreach_div(fast, (1 - first**step).to(fast[0].dtype).unbind())
            torch._foreach_add_(updates, torch._foreach_mul(slow, alpha.to(slow[0].dtype).unbind()))
            torch._foreach_div_(updates, roots)
            torch._foreach_mul_(moved, 1 - rate * group["weight_decay"])
            torch._foreach_mul_(updates, rate)
            torch._foreach_sub_(moved, updates)


def _slow(step: Tensor, first: float, group: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """α and β₃ after these numbers of steps [n]."""
    share = (step / max(group["slow_warmup"], 1)).clamp(max=1.0)
    start, end = (math.log(0.5) / math.log(beta + 1e-8) - 1 for beta in (first, group["slow_beta"]))
    risen = 0.5 ** (1 / (start + share * (end - start) + 1))
    return share * group["alpha"], torch.where(share < 1, risen, group["slow_beta"])

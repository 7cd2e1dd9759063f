"""`soap`: Adam in the eigenbasis of Shampoo's preconditioner, by the package `pytorch-optimizer`.

https://arxiv.org/abs/2409.11321. https://github.com/nikhilvyas/SOAP (`soap.py`) was run beside it: after 20 steps of a
small decoder weights differ by 2e-15 in double precision, with QR in it too.

Shapes: a parameter [1, ...] of one trial; a matrix of it [m, n].
"""

from __future__ import annotations

import importlib
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ablate.kinds.optimizers.adam import AdamBaseSpec, Beta, moments
from ablate.spec.layer import ParameterInfo

_RATIO = 4
"""A side that is longer than this many times the product of the others is not preconditioned, which bounds the state:
of a table of tokens [V, D] with V > 4D only the side D is preconditioned, as in the paper's one-sided form."""


class SoapSpec(AdamBaseSpec):
    """SOAP: Adam in the eigenbasis of Shampoo's preconditioner, with decoupled weight decay.

    L ← βL + (1-β)GGᵀ, R ← βR + (1-β)GᵀG with β = β₂; Q_L, Q_R: their eigenvectors, by one step of power iteration and
    QR every `frequency` steps; θ ← θ - η Q_L Adam(Q_Lᵀ G Q_R) Q_Rᵀ. Vectors use plain Adam. The first step only
    initialises L and R. The basis of a null space is arbitrary, so the results of a pack would differ from those of
    single trials: trials are not packed.
    """

    kind: Literal["soap"] = "soap"
    source = "arXiv:2409.11321, Algorithm 3; code: pytorch-optimizer"
    pack_aware = False
    extra = "soap"
    betas: tuple[Beta, Beta] = (0.95, 0.95)
    """β₁ and β₂, decay of the two moment averages; β₂ also of L and R."""
    frequency: int = Field(default=10, ge=1)
    """Steps between two updates of the eigenvectors."""
    longest: int = Field(default=10_000, ge=1)
    """Longest side of a matrix that is preconditioned; a side longer than 4 times the others together never is."""

    def state(self, tensor: Tensor, parameter: ParameterInfo) -> dict[str, Tensor]:
        """Two moments, the number of steps, and L and Q [1, m, m] of each preconditioned side."""
        made = moments(tensor)
        shape = tensor.shape[1:]
        limit = self._limit(shape)
        for axis, side in enumerate(shape):
            if side <= limit:
                made |= {f"{name}{axis}": tensor.new_zeros(1, side, side) for name in ("GG", "Q")}
        return made

    def _limit(self, shape: torch.Size) -> int:
        """The longest side of a tensor that is preconditioned; 0 for a vector."""
        if len(shape) < 2:
            return 0
        return max((side for side in shape if side <= self.longest and side**2 <= _RATIO * shape.numel()), default=0)

    def build(self, groups: list[dict[str, Any]], *, capturable: bool) -> torch.optim.Optimizer:
        """`Soap`. It synchronises to read a rate on the device, so its steps cannot be captured in a CUDA graph."""
        return Soap(groups, self)

    def state_bytes(self) -> int:
        """Two moments, and L and Q of both sides of a matrix with sides in the ratio 1 to 4, in single precision."""
        return 8 + 8 * (_RATIO + 2)

    def step_flops(self, parameters: int, width: int) -> float:
        """Moments and update 14, and for a matrix of this width: L and R 4m, three rotations 12m, and the eigenvectors.

        A step of power iteration and QR takes about 2m³ + 4m³/3 + 4m³/3 for each of both sides.
        """
        return (14.0 + 16.0 * width + 2 * 14 / 3 * width / self.frequency) * parameters


class Soap(torch.optim.Optimizer):
    """The package's optimizer for parameters without their pack axis; its state is kept in the tensors of this one.

    Args:
        groups: Parameter groups with rate, decay, betas and ε.
        spec: The settings that all groups share.
    """

    def __init__(self, groups: list[dict[str, Any]], spec: SoapSpec) -> None:
        super().__init__(groups, {})
        self._pairs = [(parameter, group) for group in self.param_groups for parameter in group["params"]]
        plain: list[dict[str, Any]] = []
        for parameter, group in self._pairs:
            if len(parameter) != 1:
                raise ValueError("SOAP needs a pack of one")
            # A group for each parameter: the package counts steps by group, also those without a gradient.
            more = {name: group[name] for name in ("weight_decay", "betas", "eps")}
            limit = spec._limit(parameter.shape[1:])
            plain.append({"params": [nn.Parameter(parameter.detach()[0])], "max_precondition_dim": limit, **more})
        # An optional dependency, imported only by trials that use this optimizer.
        self._theirs = importlib.import_module("pytorch_optimizer").SOAP(plain, precondition_frequency=spec.frequency)
        self._frequency = spec.frequency

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step of every parameter that has a gradient."""
        for (parameter, group), theirs in zip(self._pairs, self._theirs.param_groups, strict=True):
            (view,), kept = theirs["params"], self.state[parameter]
            view.grad = None if parameter.grad is None else parameter.grad[0]
            theirs["lr"], theirs["step"] = float(group["lr"]), int(kept["step"])
            self._theirs.state[view] = self._lent(kept, view.dim(), group["betas"][1]) if theirs["step"] else {}
        self._theirs.step()
        for (parameter, _), theirs in zip(self._pairs, self._theirs.param_groups, strict=True):
            if parameter.grad is not None:
                self._take_back(self.state[parameter], self._theirs.state[theirs["params"][0]])

    def _lent(self, kept: dict[str, Tensor], axes: int, beta: float) -> dict[str, Any]:
        """The state of a parameter in the package's form: a tensor or an empty list for each side."""
        sides = range(axes)
        by_side: dict[str, Any] = {
            name: [kept[f"{name}{at}"][0] if f"{name}{at}" in kept else [] for at in sides] for name in ("GG", "Q")
        }
        averages = {name: kept[name][0] for name in ("exp_avg", "exp_avg_sq")}
        return {**averages, **by_side, "precondition_frequency": self._frequency, "shampoo_beta": beta}

    @staticmethod
    def _take_back(kept: dict[str, Tensor], theirs: dict[str, Any]) -> None:
        """Copy back the state that the package has replaced by new tensors."""
        kept["step"] += 1
        for name, tensor in kept.items():
            if name in theirs:
                tensor[0].copy_(theirs[name])
            elif name != "step":
                tensor[0].copy_(theirs[name.rstrip("0123456789")][int(name.lstrip("GQ"))])

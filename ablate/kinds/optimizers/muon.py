"""`muon`: orthogonalised momentum for the matrices of hidden layers, AdamW for all other parameters.

- https://kellerjordan.github.io/posts/muon/
- Muon is Scalable for LLM Training (arXiv:2502.16982), eqs 1 to 4; https://arxiv.org/abs/2502.16982
- NorMuon (arXiv:2510.05491), Algorithm 1; https://arxiv.org/abs/2510.05491. v and the norm are as in `microsoft/dion`,
  whose s is √(outputs/inputs)
- The Polar Express (arXiv:2505.16932): coefficients for each iteration; https://arxiv.org/abs/2505.16932
- Cautious Weight Decay (arXiv:2510.12402), Algorithm 1; https://arxiv.org/abs/2510.12402

In double precision, after 20 steps of a small decoder with all options off their defaults, weights differ by 4e-15 from
those of torch.optim.Muon, of https://github.com/KellerJordan/Muon and https://github.com/zichongli5/NorMuon without the
ε of their norms (with it, where gradients are small, by 3e-4), and by 9e-9, the precision of its rates, from those of
`microsoft/dion` with and without cautious decay.

Shapes: k members of a pack, [k, ..., in, out] a stack of their matrices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

import torch
from pydantic import BeforeValidator, Field, TypeAdapter, model_validator
from torch import Tensor

from ablate.kinds.optimizers import without_compile_guard
from ablate.kinds.optimizers.adam import Beta, moments
from ablate.spec.base import Spec, refusal
from ablate.spec.layer import ParameterInfo, ParameterRole, StepGrowth
from ablate.spec.optimizer import OptimizerSpec

if TYPE_CHECKING:
    from ablate.spec.model import ModelSpec

Coefficients = tuple[float, float, float]
Adjust = Literal["original", "match_rms_adamw", "none"]

_EVEN_EPS = 1e-8


def _has_form(value: Any) -> Any:
    """The value, if it is three numbers or a list of such, so that an error mentions only one of both."""
    several = isinstance(value, (list, tuple)) and any(isinstance(one, (list, tuple)) for one in value)
    TypeAdapter(tuple[Coefficients, ...] if several else Coefficients).validate_python(value)
    return value


class MuonRestSpec(Spec):
    """AdamW for the parameters that Muon does not update: embeddings, heads, gains, norms and biases."""

    lr: float = Field(default=3e-4, gt=0)
    """Peak learning rate."""
    weight_decay: float = Field(default=0.0, ge=0)
    """λ, decoupled weight decay of embeddings and heads."""
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    """β₁ and β₂, decay of the two moment averages."""
    eps: float = Field(default=1e-8, gt=0)
    """ε, added to the root of the second moment."""


class MuonSpec(OptimizerSpec):
    """Orthogonalised momentum for hidden matrices, with decoupled weight decay; AdamW for all other parameters.

    M ← μM + (1-μ)G, U = (1-μ)G + μM (Nesterov) or M, O = NS(U) ≈ U(UᵀU)^(-1/2), θ ← (1 - ηλ)θ - η s O. NS iterates
    X ← aX + (bXXᵀ + c(XXᵀ)²)X from U/‖U‖_F. With `output_beta` β₂ (NorMuon) each output j of O is divided by √v_j + ε,
    v_j ← β₂v_j + (1-β₂)·mean_i O_ij² from 0 on, ε = 1e-8, and O is brought back to its norm. `lr` is the rate of the
    hidden matrices. Each matrix of a stack, such as the experts of a mixture, is orthogonalised separately.
    """

    kind: Literal["muon"] = "muon"
    value_fields = frozenset({"lr", "clip", "rates", "weight_decay", "momentum", "adamw"})
    source = "arXiv:2502.16982 eqs 1 to 4, in the form of torch.optim.Muon"
    weight_decay: float = Field(default=0.0, ge=0)
    """λ, decoupled weight decay of hidden matrices."""
    momentum: float = Field(default=0.95, ge=0, lt=1)
    """μ, decay of the momentum."""
    nesterov: bool = True
    """Whether the momentum is Nesterov's."""
    adjust: Adjust = "original"
    """s: `original`: √max(1, outputs/inputs); `match_rms_adamw`: 0.2·√max(inputs, outputs), with which rates and decays
    tuned for AdamW can be reused (arXiv:2502.16982, eq. 4); `none`: 1."""
    output_beta: float | None = Field(default=None, ge=0, lt=1)
    """β₂ of NorMuon, decay of the mean square of each output's update, in `microsoft/dion` 0.95; unless set, updates
    are not normalised."""
    cautious: bool = False
    """Whether a hidden matrix decays only where its update, too, makes it smaller, θ·O ≥ 0 (cautious weight decay,
    arXiv:2510.12402)."""
    ns_steps: int = Field(default=5, ge=1, lt=100)
    """Newton-Schulz iterations."""
    ns_coefficients: Annotated[Coefficients | tuple[Coefficients, ...], BeforeValidator(_has_form)] = (
        3.4445,
        -4.775,
        2.0315,
    )
    """a, b and c; or a list of them, for each iteration its own (Polar Express, arXiv:2505.16932)."""
    ns_precision: Literal["fp32", "bf16"] = "fp32"
    """Precision of the iterations. torch.optim.Muon uses `bf16`; with `fp32` packs and single runs agree."""
    adamw: MuonRestSpec = MuonRestSpec()
    """AdamW for all parameters that are not hidden matrices."""

    @model_validator(mode="after")
    def _has_coefficients_for_each_iteration(self) -> Self:
        if len(self.iterations) != self.ns_steps:
            raise refusal(
                ("ns_coefficients",),
                self.ns_coefficients,
                f"each of the {self.ns_steps} iterations has its own a, b and c, and these are {len(self.iterations)}",
                f"Set `ns_steps: {len(self.iterations)}`." if self.iterations else "Leave `ns_coefficients` out.",
            )
        return self

    @property
    def iterations(self) -> tuple[Coefficients, ...]:
        """a, b and c of each iteration."""
        given = self.ns_coefficients
        several = all(isinstance(one, tuple) for one in given)
        return cast("tuple[Coefficients, ...]", given if several else (given,) * self.ns_steps)

    def check_model(self, model: ModelSpec) -> None:
        """Refuse a model without hidden matrices."""
        if not any(_has_matrices(model, layer) for layer in range(model.depth)):
            raise refusal(
                ("kind",),
                "muon",
                "no layer of this model has a matrix in its mixer or MLP, which is what Muon orthogonalises",
                "Set `training.optimizer.kind: adamw`, or choose a mixer or an MLP with trainable projections.",
            )

    def options(self, parameter: ParameterInfo) -> Mapping[str, Any]:
        """Rate, decay and momentum of a hidden matrix; the options of AdamW for other parameters."""
        if parameter.role == "matrix":
            decay = self.weight_decay * parameter.decays
            axes = {"axes": (-1, -2)} if parameter.outputs_first else {}
            return {"lr": self.lr, "weight_decay": decay, "momentum": self.momentum, **axes}
        rest = self.adamw
        decay = rest.weight_decay if parameter.decays else 0.0
        return {"lr": rest.lr, "weight_decay": decay, "betas": rest.betas, "eps": rest.eps}

    def growth(self, role: ParameterRole) -> StepGrowth:
        """A step moves singular values of a matrix by η s, which must not depend on the width (arXiv:2310.17813).

        With `match_rms_adamw` s grows as the root of the width (arXiv:2603.00541). AdamW updates other parameters.
        """
        return StepGrowth(width=-0.5 if role == "matrix" and self.adjust == "match_rms_adamw" else 0.0)

    def state(self, tensor: Tensor, parameter: ParameterInfo) -> dict[str, Tensor]:
        """The momentum of a hidden matrix; two moments and the number of steps of other parameters."""
        if parameter.role != "matrix":
            return moments(tensor)
        state = {"momentum_buffer": torch.zeros_like(tensor)}
        if self.output_beta is None:
            return state
        first = tensor.narrow(-1 if parameter.outputs_first else -2, 0, 1)
        return state | {"output_moment": torch.zeros_like(first)}

    def build(self, groups: list[dict[str, Any]], *, capturable: bool) -> torch.optim.Optimizer:
        """`Muon`, with torch's fused AdamW for the other groups."""
        made: torch.optim.Optimizer = without_compile_guard(Muon)(groups, self, capturable=capturable)
        return made

    def state_bytes(self) -> int:
        """Two moments in single precision, as for the parameters of AdamW."""
        return 8

    def step_flops(self, parameters: int, width: int) -> float:
        """Momentum 3 + 3, update 2, decay 1, and the iterations, as if all parameters were hidden matrices.

        An iteration over a matrix [n, m], n ≤ m, is three products of 2n²m, 2n³ and 2n²m operations: at most 6n per
        parameter.
        """
        return (9.0 + 6.0 * width * self.ns_steps) * parameters


def _has_matrices(model: ModelSpec, layer: int) -> bool:
    layer_context, block = model.layer_context(1, layer=layer), model.blocks[layer]
    return bool(block.mixer.cost(layer_context, 1).parameters or block.mlp.cost(layer_context, 1).parameters)


class Muon(torch.optim.Optimizer):
    """The optimizer of `MuonSpec`. Torch's takes single matrices, and synchronises to read a rate on the device.

    Args:
        groups: Those with a `momentum` are matrices, [k, ..., in, out] unless `axes` names other axes of inputs and
            outputs; AdamW updates the others.
        spec: The settings that all groups share.
        capturable: Whether steps are captured in a CUDA graph.
    """

    def __init__(self, groups: list[dict[str, Any]], spec: MuonSpec, *, capturable: bool) -> None:
        super().__init__(groups, {"axes": (-2, -1)})
        self._spec = spec
        rest = [group for group in self.param_groups if "momentum" not in group]
        self._rest = without_compile_guard(torch.optim.AdamW)(rest, fused=True, capturable=capturable) if rest else None
        if self._rest is not None:
            self._rest.state = self.state  # one state, filled before the first step
            self._rest.param_groups = rest  # the groups themselves, so that rates are set once

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step of every parameter that has a gradient."""
        if self._rest is not None:
            self._rest.step()
        for group in self.param_groups:
            if "momentum" in group:
                for shape, matrices in _by_shape(group["params"]).items():
                    self._move(group, shape, matrices)

    def _move(self, group: dict[str, Any], shape: torch.Size, matrices: list[Tensor]) -> None:
        """Update the matrices of one shape in one batch of products."""
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        momenta = [self.state[matrix]["momentum_buffer"] for matrix in matrices]
        share, rate = group["momentum"], group["lr"]
        torch._foreach_lerp_(momenta, gradients, 1 - share)
        updates = torch._foreach_lerp(gradients, momenta, share) if self._spec.nesterov else momenta
        stacked = torch.cat([update.reshape(-1, *shape[-2:]) for update in updates])
        spec = self._spec
        lower = torch.bfloat16 if spec.ns_precision == "bf16" else torch.promote_types(stacked.dtype, torch.float32)
        made = orthogonalise(stacked.to(lower), spec.iterations)
        moves = torch.split(made.to(stacked.dtype), [matrix[..., 0, 0].numel() for matrix in matrices])
        if not spec.cautious:
            torch._foreach_mul_(matrices, 1 - rate * group["weight_decay"])
        inputs, outputs = group["axes"]
        scale = rate * adjustment(spec.adjust, shape[inputs], shape[outputs])
        for matrix, move in zip(matrices, moves, strict=True):
            update = move.view_as(matrix)
            if spec.output_beta is not None:
                update = _even_outputs(update, self.state[matrix]["output_moment"], spec.output_beta, inputs)
            if spec.cautious:
                matrix.sub_(matrix * (matrix * update >= 0) * (rate * group["weight_decay"]))
            matrix.sub_(update * scale)


def _even_outputs(update: Tensor, moment: Tensor, beta: float, inputs: int = -2) -> Tensor:
    """Updates of matrices whose outputs are divided by the roots of their mean squares, with the norm of before.

    Args:
        update: O.
        moment: v, as O with one input; it is updated.
        beta: β₂.
        inputs: The axis of the inputs.
    """
    norm: Tensor = torch.linalg.matrix_norm(update, keepdim=True)
    moment.lerp_(update.square().mean(inputs, keepdim=True), 1 - beta)
    even: Tensor = update / (moment.sqrt() + _EVEN_EPS)
    made: Tensor = even * (norm / torch.linalg.matrix_norm(even, keepdim=True).clamp(min=_EVEN_EPS))
    return made


def _by_shape(parameters: Sequence[Tensor]) -> dict[torch.Size, list[Tensor]]:
    """The parameters that have a gradient, by the shape of their matrices."""
    by_shape: dict[torch.Size, list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            by_shape.setdefault(parameter.shape[-2:], []).append(parameter)
    return by_shape


def adjustment(rule: Adjust, inputs: int, outputs: int) -> float:
    """s, the factor of the rate of a matrix [in, out]."""
    if rule == "original":
        return math.sqrt(max(1.0, outputs / inputs))
    return 0.2 * math.sqrt(max(inputs, outputs)) if rule == "match_rms_adamw" else 1.0


def orthogonalise(matrices: Tensor, iterations: Sequence[Coefficients], eps: float = 1e-7) -> Tensor:
    """Newton-Schulz iterations: matrices [n, in, out] with the same singular vectors, and singular values near 1.

    Args:
        matrices: The matrices to orthogonalise; they are not changed.
        iterations: a, b and c of the quintic of each iteration.
        eps: Lower bound of the norm by which a matrix is divided.
    """
    wide: Tensor = matrices.mT if matrices.shape[-2] > matrices.shape[-1] else matrices
    x: Tensor = wide / torch.linalg.matrix_norm(wide, keepdim=True).clamp(min=eps)
    for a, b, c in iterations:
        gram = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if wide is not matrices else x

"""`OptimizerSpec`: the base class of optimizers. The kinds are in `ablate/kinds/optimizers/`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field, model_validator

from ablate.spec.base import Family, PublishedKind, Spec, refusal
from ablate.spec.layer import ParameterInfo, ParameterRole, StepGrowth

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ablate.spec.model import ModelSpec

OPTIMIZERS = Family("optimizer", package="ablate.kinds.optimizers", entry_points="ablate.optimizers")


class RatesSpec(Spec):
    """Learning rates of groups of parameters, as shares of the rate that the optimizer gives them."""

    embedding: float = Field(default=1.0, gt=0)
    """Of the tables of tokens and of learned positions; a head tied to the embedding is the embedding."""
    head: float = Field(default=1.0, gt=0)
    """Of the matrices between the last block and the outputs."""
    gain: float = Field(default=1.0, gt=0)
    """Of gains, norms, biases and everything else that is not a matrix."""
    layer_decay: float = Field(default=1.0, gt=0, le=1)
    """Ratio of the rate of each block, and of the embedding, to the rate of the next block or head (the discriminative
    rates of arXiv:1801.06146, section 3.2, with 1/2.6)."""

    def factor(self, parameter: ParameterInfo, depth: int) -> float:
        """The share of one parameter in a model of `depth` blocks; parameters after the last block have no decay."""
        by_role = {"embedding": self.embedding, "head": self.head, "gain": self.gain, "matrix": 1.0}
        below = depth + 1 if parameter.role == "embedding" else 0
        if parameter.layer is not None:
            below = depth - parameter.layer
        return by_role[parameter.role] * self.layer_decay**below


class OptimizerSpec(PublishedKind):
    """An optimizer. A final subclass adds `kind`, its fields, the methods below and `source`.

    The members of a pack may differ in the fields in `value_fields`. All other fields are structure: trials that differ
    in them never share a pack.
    """

    family = OPTIMIZERS
    default_kind = "adamw"
    value_fields: ClassVar[frozenset[str]] = frozenset({"lr", "clip", "rates"})
    elementwise: ClassVar[bool] = False
    """Whether the step of each entry of a parameter depends on the gradient of that entry alone, so that the entries
    may be divided among GPUs (`resources.shard`)."""

    pack_aware: ClassVar[bool] = True
    """Whether it moves each member of a pack as if alone. Trials with an optimizer that does not are trained singly."""
    extra: ClassVar[str] = ""
    """The extra of `ablate-blocks` whose packages it needs, such as `soap`; empty if it needs none."""

    lr: float = Field(gt=0)
    """Peak learning rate."""
    clip: float = Field(default=1.0, gt=0)
    """Largest 2-norm of a member's whole gradient; longer ones are scaled down."""
    rates: RatesSpec = RatesSpec()
    """Rates of embeddings, heads and gains, and of blocks by their depth, where they are not the optimizer's own."""
    hyperball: bool = False
    """Whether matrices of hidden layers and heads keep their Frobenius norms (MuonH, AdamH): with the step u of the
    optimizer V = W - η·u·‖W‖/‖u‖ and W ← V·‖W‖/‖V‖, so η is the length of a step as a share of the matrix. Each matrix
    of a stack, such as the experts of a mixture, has its own norm; in `muonh.py` and `adamh.py` of
    `marin-community/marin`, from which this is, stacked layers have one norm for all experts of a layer. A matrix that
    starts at 0 moves as without it; there it stays 0 or fails. As the head keeps its norm too, logits grow by gains
    alone: small models need higher rates of gains or a larger `init_std`."""

    @model_validator(mode="after")
    def _cannot_shrink_on_a_sphere(self) -> Self:
        roles: tuple[ParameterRole, ...] = ("matrix", "head") if self.hyperball else ()
        for role in roles:
            options = self.options(ParameterInfo("weight", (1, 1), role, decays=True))
            if options.get("weight_decay"):
                raise refusal(
                    ("hyperball",),
                    True,
                    f"a {role} has a weight decay of {options['weight_decay']:g}, and its norm is to stay what it is",
                    "Set the weight decay to 0, or `hyperball: false`.",
                )
        return self

    def moves_on_sphere(self, parameter: ParameterInfo) -> bool:
        """Whether the norm of a parameter is kept."""
        return self.hyperball and parameter.role in ("matrix", "head") and not parameter.starts_at_zero

    def scaled_growth(self, role: ParameterRole) -> StepGrowth | None:
        """As `growth`; None on a sphere, where a step follows the length of the matrix, which no rule here scales."""
        return None if self.hyperball else self.growth(role)

    def check_model(self, model: ModelSpec) -> None:
        """Refuse a model that it cannot train.

        Raises:
            ValidationError: From `refusal`, with the path inside this spec.
        """

    def growth(self, role: ParameterRole) -> StepGrowth | None:
        """How its steps of the parameters with a role change with the size of a model, for `mup` and `complete_p`.

        None, the default: it is not known, and a model with one of these initialisers is refused.
        """
        return None

    @abstractmethod
    def options(self, parameter: ParameterInfo) -> Mapping[str, Any]:
        """The options of one parameter: its peak rate `lr`, `rates` apart, and what else `build` reads from its group.

        Parameters with equal options form one group. The values must be hashable.
        """

    @abstractmethod
    def state(self, tensor: Tensor, parameter: ParameterInfo) -> dict[str, Tensor]:
        """The initial optimizer state of a parameter [K, ...], by name.

        A tensor with leading axis K has values for each member. A scalar tensor is shared by all members.
        """

    @abstractmethod
    def build(self, groups: list[dict[str, Any]], *, capturable: bool) -> torch.optim.Optimizer:
        """Build the optimizer for parameter groups, each with `params` and its options.

        The tensors in `params` are [k, ...] for the k members that share these options, 1 unless `pack_aware`; the
        optimizer must treat members independently. `optimizer.state` is filled with `state` before the first step.

        Args:
            capturable: Whether steps are captured in a CUDA graph. Then `lr` is a scalar tensor on the device, whose
                value changes from step to step, and a step may not wait for the device.
        """

    @abstractmethod
    def state_bytes(self) -> int:
        """Maximum number of bytes in `state` per parameter."""

    @abstractmethod
    def step_flops(self, parameters: int, width: int) -> float:
        """Arithmetic of one step over this many parameters, in a model of this width."""

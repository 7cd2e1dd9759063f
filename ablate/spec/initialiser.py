"""`InitialiserSpec`: initial values of weights. The kinds are in `ablate/kinds/initialisers/`, one file each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, Kinded

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from ablate.spec.layer import LayerContext
    from ablate.spec.parameter import ParameterInfo

Initial = Callable[["Tensor", "Generator"], "Tensor"]
"""Fills the values [...] of one member in place and returns them."""
INITIALISERS = Family("initialiser", package="ablate.kinds.initialisers", entry_points="ablate.initialisers")

Role = Literal["embedding", "hidden", "output", "head"]
"""The role of a weight: `embedding` (of tokens or positions), `hidden` (inside a branch of a block), `output` (the last
layer of a branch, whose result is added to the residual stream), `head` (from the stream to the logits)."""


@dataclass(frozen=True, slots=True)
class RateScaling:
    """Factors of the options of an optimizer for one parameter.

    Attributes:
        lr: The rate.
        weight_decay: The decay.
        eps: What is added to the root of the second moment.
    """

    lr: float = 1.0
    weight_decay: float = 1.0
    eps: float = 1.0


def zeros(values: Tensor, generator: Generator) -> Tensor:
    """All 0."""
    return values.zero_()


class InitialiserSpec(Kinded):
    """A rule for initial weights. A final subclass adds `kind`, its fields and `initial`."""

    family = INITIALISERS
    default_kind = "normal"
    source: ClassVar[str]
    """Paper and equation."""
    scales_rates: ClassVar[bool] = False
    """Whether it is a parametrisation that scales the rates of an optimizer whose steps are as long as Adam's."""

    @property
    def zero_outputs(self) -> bool:
        """Whether the maps that write to the residual stream start at 0."""
        return False

    @classmethod
    def facts(cls) -> dict[str, str | bool]:
        """The source."""
        return {"source": cls.source}

    @abstractmethod
    def initial(self, role: Role, inputs: int, outputs: int, context: LayerContext) -> Initial:
        """The function that initialises a weight [inputs, outputs] of one member.

        Args:
            role: Role of the weight.
            inputs: Its fan-in; for an embedding the number of rows.
            outputs: Its fan-out.
            context: Its layer; `context.init_std` is the standard deviation of the model.
        """

    def initial_bias(self, inputs: int) -> Initial:
        """The function that initialises the bias of a map with `inputs` inputs: 0 unless a kind says otherwise."""
        return zeros

    def scaling(self, parameter: ParameterInfo, context: LayerContext) -> RateScaling:
        """Factors of the optimizer's options for a parameter; 1 by default.

        Args:
            parameter: The parameter.
            context: The model around it; its layer is ignored.
        """
        return RateScaling()

    def branch_scale(self, context: LayerContext) -> float:
        """The factor of the output of each sub-layer."""
        return 1.0

    def logit_scale(self, context: LayerContext) -> float:
        """The factor of the logits of tokens."""
        return 1.0


Initialiser = Annotated[InitialiserSpec, OneOf]

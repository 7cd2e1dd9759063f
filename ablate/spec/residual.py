"""`ResidualSpec`: residual connections of a layer. The kinds are in `ablate/kinds/residuals/`, one file each."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated

from ablate.spec.annotations import OneOf
from ablate.spec.base import Family
from ablate.spec.cost import Cost
from ablate.spec.part import PartSpec

if TYPE_CHECKING:
    from torch import nn

    from ablate.spec.block import BlockSpec
    from ablate.spec.layer import LayerContext

RESIDUALS = Family("residual", package="ablate.kinds.residuals", entry_points="ablate.residuals")


class ResidualSpec(PartSpec):
    """How the sub-layers of a layer read and write the residual stream.

    A final subclass adds `kind`, its fields, `build` and `cost`.
    """

    family = RESIDUALS
    default_kind = "plain"

    def stream_sizes(self, context: LayerContext) -> tuple[int, ...]:
        """Sizes of the stream after the token axis: (D,), unless a kind has several streams."""
        return (context.width,)

    def check_block(self, block: BlockSpec) -> None:
        """Refuse a block that this kind does not support, such as one whose skips it replaces.

        Raises:
            ValidationError: From `refusal`, with the path inside the block.
        """

    @abstractmethod
    def build(self, context: LayerContext) -> nn.Module:
        """Build the module of one layer, an `ablate.nn.pack.Residual`."""

    @abstractmethod
    def cost(self, context: LayerContext, length: int, joins: int) -> Cost:
        """Cost of one layer over one sequence of `length` tokens, with `joins` sums of a skip and a branch."""

    def label(self) -> str:
        """Label at the start of the block in drawings; empty by default."""
        return ""


Residual = Annotated[ResidualSpec, OneOf]

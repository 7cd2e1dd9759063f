"""`MLPSpec`: the feed-forward sub-layer of a block. The kinds are in `ablate/kinds/mlps/`, one file each."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, ClassVar

from ablate.spec.annotations import OneOf
from ablate.spec.base import Family
from ablate.spec.cost import Cost
from ablate.spec.part import PartSpec

if TYPE_CHECKING:
    from torch import nn

    from ablate.spec.layer import LayerContext

MLPS = Family("MLP", package="ablate.kinds.mlps", entry_points="ablate.mlps")


class MLPSpec(PartSpec):
    """A sub-layer that maps each token separately. A final subclass adds `kind`, its fields, `build` and `cost`."""

    family = MLPS
    default_kind = "plain"
    present: ClassVar[bool] = True
    """Whether the part exists; False for `none`."""

    @abstractmethod
    def build(self, context: LayerContext) -> nn.Module:
        """Build the module; `forward(x)` maps x [K, B, T, D] to the same shape, each token separately."""

    @abstractmethod
    def cost(self, context: LayerContext, length: int) -> Cost:
        """Cost of the forward pass over one sequence of `length` tokens in training."""

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """Rows of (slot, label) that a drawing shows inside the MLP, in the order of the computation.

        By default the settings that differ from their defaults.
        """
        return self.settings_as_parts()


MLP = Annotated[MLPSpec, OneOf]

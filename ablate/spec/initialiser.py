"""`InitialiserSpec`: initial values of weights. The kinds are in `ablate/kinds/initialisers/`, one file each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, Kinded

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from ablate.spec.layer import LayerContext

Initial = Callable[["Tensor", "Generator"], "Tensor"]
"""Fills the values [...] of one member in place and returns them."""
INITIALISERS = Family("initialiser", package="ablate.kinds.initialisers", entry_points="ablate.initialisers")

Role = Literal["embedding", "hidden", "output", "head"]
"""The role of a weight: `embedding` (of tokens or positions), `hidden` (inside a branch of a block), `output` (the last
layer of a branch, whose result is added to the residual stream), `head` (from the stream to the logits)."""


class InitialiserSpec(Kinded):
    """A rule for initial weights. A final subclass adds `kind`, its fields and `initial`."""

    family = INITIALISERS
    default_kind = "normal"
    source: ClassVar[str]
    """Paper and equation."""

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


Initialiser = Annotated[InitialiserSpec, OneOf]

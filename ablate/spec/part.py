"""`PartSpec`: the base class of mixers, MLPs and residuals; `SharedTensor`: a tensor that layers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from ablate.spec.base import Kinded

if TYPE_CHECKING:
    from ablate.spec.initialiser import InitialiserSpec
    from ablate.spec.layer import LayerContext

Sublayer = Literal["mixer", "mlp"]
"""A part of a block that joins the stream."""
EMBEDDING = -1
"""The layer index of the input of the first layer."""


@dataclass(frozen=True, slots=True)
class SharedTensor:
    """A tensor [K, B, T, *sizes] that one layer publishes and later layers read.

    The model itself publishes `stream`: the output of each layer, and at `EMBEDDING` the input of the first layer. A
    decoder also publishes `tokens` at `EMBEDDING`: the token ids [K, B, T], whole numbers.

    Attributes:
        name: Name of the tensor.
        layer: Index of the layer that publishes it.
        sizes: Sizes of its axes after the token axis.
    """

    name: str
    layer: int
    sizes: tuple[int, ...]


class PartSpec(Kinded):
    """A part of a layer with a module. It may read tensors of earlier layers and publish tensors for later ones.

    A part that reads is called with `shared`, the tensors in the order of `reads`: `forward(..., shared=(a, b))`, and
    `step(..., shared=(a, b))` if it has a `step`. A part that publishes returns its tensors, in the order of
    `publishes`, as a tuple after its result: `return y, (a, b)`; a step returns `y, state, (a, b)`. In cached decoding
    a shared tensor holds only the current token, [K, B, 1, *sizes].
    """

    source: ClassVar[str]
    """Paper and equation."""
    pack_aware: ClassVar[bool] = True
    """Whether its module handles the pack axis K. False: it is written for [B, T, D], wrapped, and never packed."""
    differs_by_layer: ClassVar[bool] = False
    """Whether its cost depends on the index of its layer, as that of a part that shares may."""
    must_be_read: ClassVar[bool] = False
    """Whether a layer whose tensors no later layer reads is refused, because its setting would have no effect."""

    @property
    def shares(self) -> bool:
        """Whether it reads or publishes tensors in some layer; unless a kind says otherwise, if it has a method for it.

        What a part costs may depend on its layer only if it shares.
        """
        return type(self).reads is not PartSpec.reads or type(self).publishes is not PartSpec.publishes

    @classmethod
    def facts(cls) -> dict[str, str | bool]:
        """The source."""
        return {"source": cls.source}

    def check(self, context: LayerContext) -> None:
        """Refuse a context that this part does not support.

        Raises:
            ValidationError: From `refusal`, with the path inside this spec.
        """

    def starts_at_zero(self, initialiser: InitialiserSpec) -> bool:
        """Whether everything that it gives is 0 before the first step.

        Args:
            initialiser: How its maps start.
        """
        return False

    def reads(self, context: LayerContext) -> tuple[SharedTensor, ...]:
        """The tensors of earlier layers that it reads in the layer `context.layer`."""
        return ()

    def publishes(self, context: LayerContext) -> tuple[SharedTensor, ...]:
        """The tensors that it publishes for later layers; see `LayerContext.shared`."""
        return ()

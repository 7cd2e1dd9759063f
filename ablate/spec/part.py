"""`PartSpec`: what mixers, MLPs and residuals have in common, and the tensors that layers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ablate.spec.base import Kinded

if TYPE_CHECKING:
    from ablate.spec.layer import LayerContext

EMBEDDING = -1
"""Stands for the layer of what the token embedding gives to the first layer."""


@dataclass(frozen=True, slots=True)
class SharedTensor:
    """A tensor [K, B, T, *sizes] that one layer publishes and later layers read.

    The model itself publishes `stream`: what each layer gives, and at `EMBEDDING` what the first layer is given. A
    decoder also publishes `tokens` at `EMBEDDING`: the token ids [K, B, T], whole numbers.

    Attributes:
        name: What it is.
        layer: Index of the layer that publishes it.
        sizes: Sizes of its axes after those of the tokens.
    """

    name: str
    layer: int
    sizes: tuple[int, ...]


class PartSpec(Kinded):
    """A part of a layer that makes a module. It may read tensors of earlier layers, and publish tensors for later ones.

    A part that reads is called with `shared`, the tensors in the order of `reads`: `forward(..., shared=(a, b))`, and
    `step(..., shared=(a, b))` if it has a `step`. One that publishes gives its tensors, in the order of `publishes`, as
    a tuple after its result: `return y, (a, b)`; a step gives `y, state, (a, b)`. In cached decoding a shared tensor
    holds the present token alone, [K, B, 1, *sizes].
    """

    source: ClassVar[str]
    """Paper and equation."""
    pack_aware: ClassVar[bool] = True
    """Whether its module keeps the pack axis K apart. False: written for [B, T, D], wrapped, never fused."""

    @property
    def shares(self) -> bool:
        """Whether it reads or publishes tensors in some layer; unless a kind says otherwise, if it has a method for it.

        What a part costs may depend on its layer only if it shares.
        """
        return type(self).reads is not PartSpec.reads or type(self).publishes is not PartSpec.publishes

    @classmethod
    def facts(cls) -> dict[str, str | bool]:
        """Its source."""
        return {"source": cls.source}

    def check(self, context: LayerContext) -> None:
        """Refuse a context that this part cannot work in.

        Raises:
            ValidationError: From `refusal`, with the path inside this spec.
        """

    def reads(self, context: LayerContext) -> tuple[SharedTensor, ...]:
        """The tensors of earlier layers that it is given in the layer `context.layer`."""
        return ()

    def publishes(self, context: LayerContext) -> tuple[SharedTensor, ...]:
        """The tensors that it gives to later layers; see `LayerContext.shared`."""
        return ()

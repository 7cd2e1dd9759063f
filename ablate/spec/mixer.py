"""`MixerSpec`: what every kind of mixer says of itself. The kinds stand in `ablate/kinds/mixers/`, one file each."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from ablate.spec.annotations import OneOf
from ablate.spec.base import Family
from ablate.spec.cost import Cost
from ablate.spec.named import block_names
from ablate.spec.part import PartSpec
from ablate.spec.position import Applied

if TYPE_CHECKING:
    from torch import nn

    from ablate.spec.layer import LayerContext


def _is_a_block(name: str) -> str | None:
    return f"`{name}` is a named block, with its mixer in it: set `block: {name}`." if name in block_names() else None


MIXERS = Family("mixer", package="ablate.kinds.mixers", entry_points="ablate.mixers", other=_is_a_block)


class MixerSpec(PartSpec):
    """A token-mixing sub-layer. A final subclass adds `kind`, its fields, `build`, `cost` and its class facts."""

    family = MIXERS
    complexity: ClassVar[str]
    """Cost class in sequence length L and width d, in words a reader of the papers knows (`L²d`)."""
    causal_form: ClassVar[bool] = True
    """Whether the mixer can hide the future, so that a decoder may use it."""
    bidirectional_form: ClassVar[bool] = True
    """Whether the mixer can see both sides, so that an encoder may use it."""
    uses_heads: ClassVar[bool] = False
    """Whether it splits the width into heads, so that their number must divide it."""
    any_head_width: ClassVar[bool] = False
    """Whether a head may have another width than D/H (`context.head_width`)."""
    relative_positions: ClassVar[frozenset[Applied]] = frozenset()
    """Where it applies the positions of its layer: to its queries and keys, to its logits."""
    takes_window: ClassVar[bool] = False
    """Whether it can see the tokens nearer than `context.window` alone."""
    cross_form: ClassVar[bool] = False
    """Whether it can read keys and values from another sequence: `forward(x, padding, memory, memory_padding)`."""

    @classmethod
    def facts(cls) -> dict[str, str | bool]:
        """Cost class, forms and source."""
        return {
            "complexity": cls.complexity,
            "causal": cls.causal_form,
            "bidirectional": cls.bidirectional_form,
            "source": cls.source,
        }

    @abstractmethod
    def build(self, context: LayerContext) -> nn.Module:
        """The module. `forward(x, padding=None)` maps x [K, B, T, D] to [K, B, T, D].

        `padding` is [K, B, T], True where a token is real; None means that all are.
        """

    @abstractmethod
    def cost(self, context: LayerContext, length: int) -> Cost:
        """Cost of the forward pass over one sequence of `length` tokens in training."""

    def step_cost(self, context: LayerContext, position: int) -> Cost:
        """Cost of token `position` (from 1) in causal inference, what the tokens before it left being kept.

        It is what the token adds to the cost of a sequence; a kind whose training takes another way overrides this.
        """
        whole = self.cost(context, position)
        token = whole + self.cost(context, position - 1) * -1
        return replace(token, parameters=whole.parameters, activations=0)

    def cache(self, context: LayerContext, length: int) -> int:
        """Scalars that causal inference keeps of a sequence of `length` tokens, to go on without reading them again.

        The mixer's inputs, unless a kind says otherwise.
        """
        return length * context.width

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """What a picture shows inside the mixer: rows of (slot, label), in the order of the computation.

        Two mixers of one kind are compared slot by slot. Unless a kind says otherwise: its settings
        that are no default.
        """
        return self.settings_as_parts()


Mixer = Annotated[MixerSpec, OneOf]

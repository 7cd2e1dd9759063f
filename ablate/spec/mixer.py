"""`MixerSpec`: what every kind of mixer says of itself. The kinds stand in `ablate/mixers/`, one file each."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, Kinded
from ablate.spec.cost import Cost
from ablate.spec.named import block_names

if TYPE_CHECKING:
    from torch import nn


def _is_a_block(name: str) -> str | None:
    return f"`{name}` is a named block, with its mixer in it: set `block: {name}`." if name in block_names() else None


MIXERS = Family("mixer", package="ablate.mixers", entry_points="ablate.mixers", other=_is_a_block)


@dataclass(frozen=True, slots=True)
class MixerContext:
    """What a mixer is told of the model around it.

    Attributes:
        pack: K, members trained together.
        width: D, of the residual stream.
        heads: H, of the model; kinds without heads ignore it.
        depth: Number of blocks.
        context: The longest input in tokens.
        causal: Whether position t may see positions after t.
        init_std: Standard deviation of normal initial values.
        positions: Relative positions that the mixer itself applies (`rotary`, `alibi`), else `none`.
        cross: Whether keys and values are read from another sequence.
    """

    pack: int
    width: int
    heads: int
    depth: int
    context: int
    causal: bool
    init_std: float = 0.02
    positions: str = "none"
    cross: bool = False


class MixerSpec(Kinded):
    """A token-mixing sub-layer. A final subclass adds `kind`, its fields, `build`, `cost` and its class facts."""

    family = MIXERS
    source: ClassVar[str]
    """Paper and equation."""
    complexity: ClassVar[str]
    """Cost class in sequence length L and width d, in words a reader of the papers knows (`L²d`)."""
    causal_form: ClassVar[bool] = True
    """Whether the mixer can hide the future, so that a decoder may use it."""
    bidirectional_form: ClassVar[bool] = True
    """Whether the mixer can see both sides, so that an encoder may use it."""
    uses_heads: ClassVar[bool] = False
    """Whether it splits the width into heads, so that their number must divide it."""
    relative_positions: ClassVar[frozenset[str]] = frozenset()
    """Kinds of relative position that it can apply (`rotary`, `alibi`)."""
    cross_form: ClassVar[bool] = False
    """Whether it can read keys and values from another sequence: `forward(x, padding, memory, memory_padding)`."""
    pack_aware: ClassVar[bool] = True
    """Whether its module keeps the pack axis K apart. False: written for [B, T, D], wrapped, never fused."""

    def check(self, context: MixerContext) -> None:
        """Refuse a context that this mixer cannot work in.

        Raises:
            ValidationError: From `refusal`, with the path inside this spec.
        """

    @abstractmethod
    def build(self, context: MixerContext) -> nn.Module:
        """The module. `forward(x, padding=None)` maps x [K, B, T, D] to [K, B, T, D].

        `padding` is [K, B, T], True where a token is real; None means that all are.
        """

    @abstractmethod
    def cost(self, context: MixerContext, length: int) -> Cost:
        """Cost of the forward pass over one sequence of `length` tokens in training."""

    def step_cost(self, context: MixerContext, position: int) -> Cost:
        """Cost of token `position` (from 1) in causal inference, what the tokens before it left being kept.

        It is what the token adds to the cost of a sequence; a kind whose training takes another way overrides this.
        """
        whole = self.cost(context, position)
        token = whole + self.cost(context, position - 1) * -1
        return replace(token, parameters=whole.parameters, activations=0)

    def cache(self, context: MixerContext, length: int) -> int:
        """Scalars that causal inference keeps of a sequence of `length` tokens, to go on without reading them again.

        The mixer's inputs, unless a kind says otherwise.
        """
        return length * context.width

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """What a picture shows inside the mixer: rows of (slot, label), in the order of the computation.

        Two mixers of one kind are compared slot by slot. Unless a kind says otherwise: its settings
        that are no default.
        """
        plain = self.canonical()
        return tuple(((name, f"{name.replace('_', ' ')}: {plain[name]}"),) for name in plain if name != "kind")


Mixer = Annotated[MixerSpec, OneOf]

"""The base classes of mixers, MLPs and norms.

The kinds are in `ablate/kinds/mixers/`, `mlps/` and `norms/`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, PublishedKind, largest_divisor, refusal
from ablate.spec.cost import Cost
from ablate.spec.layer import Applied, PartSpec
from ablate.spec.named import block_names

if TYPE_CHECKING:
    from torch import nn

    from ablate.spec.layer import LayerContext

NORMS = Family("norm", package="ablate.kinds.norms", entry_points="ablate.norms")


class NormSpec(PublishedKind):
    """A norm over the last axis. A final subclass adds `kind`, its fields, `build`, `cost` and `label`."""

    family = NORMS
    default_kind = "rms"
    present: ClassVar[bool] = True
    """Whether the part exists; False for `none`."""

    place: Literal["pre", "post", "sandwich", "output", "pre_scaled"] = "pre"
    """`pre`: before each sub-layer; `pre_scaled`: there, divided by √l in layer l, counted from 1 (arXiv:2502.05795);
    `post`: after each residual sum (Transformer of 2017); `output`: on what each sub-layer gives, before the sum
    (OLMo 2, arXiv:2501.00656); `sandwich`: before each sub-layer and on what it gives (Peri-LN, arXiv:2502.02732;
    Gemma 2), by two norms."""

    @property
    def before(self) -> bool:
        """Whether there is a norm before the sub-layer."""
        return self.place in ("pre", "sandwich", "pre_scaled")

    @property
    def on_output(self) -> bool:
        """Whether there is a norm on what the sub-layer gives."""
        return self.place in ("output", "sandwich")

    @abstractmethod
    def build(self, pack: int, width: int) -> nn.Module:
        """Build the module; `forward(x)` maps x [K, ..., width] to the same shape, each vector separately."""

    @abstractmethod
    def cost(self, width: int, length: int) -> Cost:
        """Cost of the forward pass over `length` vectors."""

    @abstractmethod
    def label(self) -> str:
        """Label in drawings."""


Norm = Annotated[NormSpec, OneOf]


MLPS = Family("MLP", package="ablate.kinds.mlps", entry_points="ablate.mlps")


class MLPSpec(PartSpec):
    """A sub-layer that maps each token separately. A final subclass adds `kind`, its fields, `build` and `cost`."""

    family = MLPS
    default_kind = "plain"
    present: ClassVar[bool] = True
    """Whether the part exists; False for `none`."""

    def convolved_width(self, context: LayerContext) -> int:
        """Channels of its hidden layer before the activation, for `block.convolutions.in_mlp`; 0: it has no such place.

        A kind with the place builds `ConvolutionSlot.of(context, "in_mlp", ...)` and calls it there.
        """
        return 0

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


def _is_a_block(name: str) -> str | None:
    return f"`{name}` is a named block, which has a mixer: set `block: {name}`." if name in block_names() else None


MIXERS = Family("mixer", package="ablate.kinds.mixers", entry_points="ablate.mixers", other=_is_a_block)


class MixerSpec(PartSpec):
    """A token-mixing sub-layer. A final subclass adds `kind`, its fields, `build`, `cost` and its class facts."""

    family = MIXERS
    complexity: ClassVar[str]
    """Complexity in sequence length L and width d, as in papers (`L²d`)."""
    causal_form: ClassVar[bool] = True
    """Whether the mixer can be causal, so that a decoder may use it."""
    bidirectional_form: ClassVar[bool] = True
    """Whether the mixer can be bidirectional, so that an encoder may use it."""
    uses_heads: ClassVar[bool] = False
    """Whether it has heads, whose number must divide the width."""
    any_head_width: ClassVar[bool] = False
    """Whether the width of a head may differ from D/H (`context.head_width`)."""
    relative_positions: ClassVar[frozenset[Applied]] = frozenset()
    """Where it can apply the positions of its layer: to queries and keys, or to logits."""
    scales_logits: ClassVar[bool] = False
    """Whether it multiplies its logits by the factor of its positions (`PositionSpec.factor_of_logits`)."""
    takes_window: ClassVar[bool] = False
    """Whether it supports `context.window`."""
    takes_separate_inputs: ClassVar[bool] = False
    """Whether it supports `context.separate_inputs`: then x is [K, B, T, 3, D], for queries, keys and values."""
    cross_form: ClassVar[bool] = False
    """Whether it can read keys and values from another sequence: `forward(x, padding, memory, memory_padding)`."""

    @classmethod
    def facts(cls) -> dict[str, str | bool]:
        """Complexity, forms and source."""
        return {
            "complexity": cls.complexity,
            "causal": cls.causal_form,
            "bidirectional": cls.bidirectional_form,
            "source": cls.source,
        }

    def separates_documents(self) -> bool:
        """Whether it can keep documents of one window apart; then `padding` may hold their numbers."""
        return False

    def on_gpu(self) -> Self:
        """The settings whose activations a GPU keeps; others than its own if a kernel there keeps less than `cost`."""
        return self

    def convolved_width(self, context: LayerContext) -> int:
        """Channels of queries, keys and values together, for `block.convolutions.on_qkv`; 0: it has no such place.

        A kind with the place builds `ConvolutionSlot.of(context, "on_qkv", ...)` and calls it there.
        """
        return 0

    def convolved_keys(self, context: LayerContext) -> int:
        """Channels of all keys together, for `block.convolutions.on_key`; 0: it has no such place.

        A kind with the place builds `ConvolutionSlot.of(context, "on_key", ...)` and calls it there.
        """
        return 0

    def positions_context(self, context: LayerContext) -> LayerContext:
        """The context in which the positions of its layer are built: that of the layer, unless other widths turn."""
        return context

    @abstractmethod
    def build(self, context: LayerContext) -> nn.Module:
        """The module. `forward(x, padding=None)` maps x [K, B, T, D] to [K, B, T, D].

        `padding` is [K, B, T], True where a token is real; None means that all are. If the mixer separates documents,
        `padding` may be integers [K, B, T]: adjacent tokens with one number are a document, and no token sees another
        document.
        """

    @abstractmethod
    def cost(self, context: LayerContext, length: int) -> Cost:
        """Cost of the forward pass over one sequence of `length` tokens in training."""

    def step_cost(self, context: LayerContext, position: int) -> Cost:
        """Cost of token `position` (from 1) in causal inference with cached states of the previous tokens.

        By default the difference of the costs of the sequences with and without the token. Kinds with another algorithm
        for inference override this.
        """
        whole = self.cost(context, position)
        token = whole + self.cost(context, position - 1) * -1
        return replace(token, parameters=whole.parameters, activations=0)

    def cache(self, context: LayerContext, length: int) -> int:
        """Number of scalars that causal inference caches for a sequence of `length` tokens.

        By default the inputs of the mixer.
        """
        return length * context.width

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """Rows of (slot, label) that a drawing shows inside the mixer, in the order of the computation.

        Two mixers of one kind are compared slot by slot. By default the settings that differ from their defaults.
        """
        return self.settings_as_parts()


Mixer = Annotated[MixerSpec, OneOf]


def check_groups(field: str, groups: int, heads: int, rule: str) -> None:
    """Refuse a number of groups of heads that does not divide the number of heads.

    Args:
        field: The field that sets the number of groups.
        rule: The violated rule, with `{}` for the number of heads.

    Raises:
        ValidationError: Some group would have more heads than another.
    """
    if heads % groups:
        raise refusal((field,), groups, rule.format(heads), f"Set `{field}: {largest_divisor(heads, groups)}`.")

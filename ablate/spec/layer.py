"""What layers are built from: `LayerContext`, and the base classes of their parts, of positions and of initialisers.

The kinds are in `ablate/kinds/`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, PublishedKind
from ablate.spec.convolution import NO_CONVOLUTIONS, ConvolutionsSpec
from ablate.spec.cost import Cost

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

ParameterRole = Literal["matrix", "embedding", "head", "gain"]
"""The role of a parameter. `matrix`: a weight matrix of a hidden layer, or a stack of them. `embedding`: the table of
tokens or learned positions. `head`: a matrix between the last block and the outputs; a head tied to the embedding is
`embedding`. `gain`: everything else, such as gains, norms, biases and the filters of depthwise convolutions."""


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """Facts about a parameter for optimizers.

    Attributes:
        name: Qualified name, as in `model.named_parameters()`.
        shape: Shape for one member, without the pack axis.
        decays: Whether weight decay applies: to matrices, embeddings and filters, but not to gains, norms and biases.
        layer: Index of its block, from 0; None outside the blocks.
        starts_at_zero: Whether its initial values are 0.
        outputs_first: Whether it is [..., out, in], not [..., in, out].
    """

    name: str
    shape: tuple[int, ...]
    role: ParameterRole
    decays: bool
    layer: int | None = None
    starts_at_zero: bool = False
    outputs_first: bool = False


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
        layer: Index of the layer that publishes it.
        sizes: Sizes of its axes after the token axis.
    """

    name: str
    layer: int
    sizes: tuple[int, ...]


class PartSpec(PublishedKind):
    """A part of a layer with a module. It may read tensors of earlier layers and publish tensors for later ones.

    A part that reads is called with `shared`, the tensors in the order of `reads`: `forward(..., shared=(a, b))`, and
    `step(..., shared=(a, b))` if it has a `step`. A part that publishes returns its tensors, in the order of
    `publishes`, as a tuple after its result: `return y, (a, b)`; a step returns `y, state, (a, b)`. In cached decoding
    a shared tensor holds only the current token, [K, B, 1, *sizes].
    """

    pack_aware: ClassVar[bool] = True
    """Whether its module handles the pack axis K. False: it is written for [B, T, D], wrapped, and never packed."""
    length_field: ClassVar[str] = ""
    """Name of its field, if it has one, that sets the longest input it can read; see `longest_input`."""
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

    def check(self, context: LayerContext) -> None:
        """Refuse a context that this part does not support.

        Raises:
            ValidationError: From `refusal`, with the path inside this spec.
        """

    def longest_input(self, context: LayerContext) -> int | None:
        """The longest input in tokens that its module, built in this context, can read; None if there is no limit."""
        return None

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


POSITIONS = Family("position", package="ablate.kinds.positions", entry_points="ablate.positions")

Applied = Literal["embedding", "query_key", "logits", "nowhere"]
"""Where positions are applied: `embedding` (added to the token embedding), `query_key` (transform queries and keys of a
mixer), `logits` (added to the logits of a mixer), `nowhere`."""


class PositionSpec(PublishedKind):
    """A kind of position. A final subclass adds `kind`, its fields, `build` and `cost`."""

    family = POSITIONS
    default_kind = "learned"
    applied: ClassVar[Applied]
    """Where they are applied."""
    length_field: ClassVar[str] = ""
    """As of `PartSpec`."""
    factor_path: ClassVar[tuple[str, ...]] = ()
    """Path of the setting that `factor_of_logits` follows."""

    @property
    def in_layers(self) -> bool:
        """Whether layers apply them instead of the embedding."""
        return self.applied in ("query_key", "logits")

    @property
    def one_for_all_layers(self) -> bool:
        """Whether all layers of a stack apply them by one module; its parameters count once."""
        return False

    @property
    def factor_of_logits(self) -> float:
        """The factor by which these positions multiply all logits of softmax attention."""
        return 1.0

    @property
    def incremental_limit(self) -> int | None:
        """Tokens up to which a text may grow without a change of what its earlier tokens get; None: without limit."""
        return None

    def check(self, context: LayerContext) -> None:
        """Refuse a context that these positions do not support.

        Raises:
            ValidationError: From `refusal`, with the path inside this spec.
        """

    def longest_input(self, context: LayerContext) -> int | None:
        """The longest input in tokens that the module, built in this context, can read; None if there is no limit."""
        return None

    @abstractmethod
    def build(self, context: LayerContext) -> nn.Module:
        """Build the module. Its `forward` depends on `applied`; `first` is the position of the first token.

        `embedding`: `forward(x, first=0)` maps [K, B, T, D] to the same. `query_key`: `forward(x, first=0)` maps
        queries or keys [K, B, H, T, d_h] to the same. `logits`: `forward(q, length, first=0)` returns the bias for the
        logits of queries q [K, B, H, T, d_h] and keys at the positions 0 to `length` - 1, broadcastable to [K, B, H, T,
        length].
        """

    @abstractmethod
    def cost(self, context: LayerContext, length: int, *, key_heads: int = 0, pairs: int = 0) -> Cost:
        """Cost of the forward pass over one sequence.

        Args:
            context: Where they are applied; `embedding` positions have rows for `context.context` tokens.
            length: Number of tokens.
            key_heads: Number of heads of keys, for `query_key`; queries have `context.heads`.
            pairs: Number of logits of each head, for `logits`.
        """


Position = Annotated[PositionSpec, OneOf]


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
        eps: What is added to the root of the second moment.
    """

    lr: float = 1.0
    weight_decay: float = 1.0
    eps: float = 1.0


@dataclass(frozen=True, slots=True)
class StepGrowth:
    """How the steps of an optimizer change with the size of a model, from which its rates at another size follow.

    Attributes:
        width: x: a rate η that was tuned at width D holds at width m·D as η·m^x (arXiv:2203.03466, Table 8).
        follows_gradient: Whether a step is as long as the gradient says, as with SGD. Steps of Adam, Lion and Muon have
            the same length for any length of the gradient.
    """

    width: float
    follows_gradient: bool = False

    def depth(self, alpha: float) -> float:
        """y: η tuned at depth L holds at depth l·L as η·l^y, where the output of a sub-layer is multiplied by l^(-α).

        The factor l^(-α) also shortens the gradients inside blocks (arXiv:2310.02244, Table 1, with α = 1/2).
        """
        return 2 * alpha - 1 if self.follows_gradient else alpha - 1


def zeros(values: Tensor, generator: Generator) -> Tensor:
    """All 0."""
    return values.zero_()


class InitialiserSpec(PublishedKind):
    """A rule for initial weights. A final subclass adds `kind`, its fields and `initial`."""

    family = INITIALISERS
    default_kind = "normal"
    scales_rates: ClassVar[bool] = False
    """Whether it is a parametrisation that scales the rates of an optimizer with the width of the model."""
    scales_depth: ClassVar[bool] = False
    """Whether it also scales them with the depth."""

    @property
    def zero_outputs(self) -> bool:
        """Whether the maps that write to the residual stream start at 0."""
        return False

    @abstractmethod
    def initial(self, role: Role, inputs: int, outputs: int, context: LayerContext) -> Initial:
        """The function that initialises a weight [inputs, outputs] of one member.

        Args:
            inputs: Its fan-in; for an embedding the number of rows.
            outputs: Its fan-out.
            context: Its layer; `context.init_std` is the standard deviation of the model.
        """

    def initial_bias(self, inputs: int) -> Initial:
        """The function that initialises the bias of a map with `inputs` inputs: 0 unless a kind says otherwise."""
        return zeros

    def scaling(self, parameter: ParameterInfo, growth: StepGrowth, context: LayerContext) -> RateScaling:
        """Factors of the optimizer's options for a parameter; 1 by default.

        Args:
            growth: How the optimizer's steps of this parameter change with the size of the model.
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


@dataclass(frozen=True, slots=True)
class LayerContext:
    """Facts about the model from which a part of a layer is built.

    Attributes:
        pack: Number K of members trained together.
        width: Width D of the residual stream.
        heads: Number H of heads; kinds without heads ignore it.
        head_width: Width of a head; 0: D/H.
        depth: Number of blocks.
        context: The longest input in tokens.
        causal: Whether position t may see positions after t.
        init_std: Standard deviation of normal initial values.
        positions: Positions that the layer's mixer applies itself; None if there are none.
        window: Number of tokens that the mixer sees to each side, including the token itself; None for all.
        cross: Whether keys and values are read from another sequence.
        layer: Index of the layer, from 0.
        sublayers: Those that join the stream; a parallel block joins as `mixer` alone.
        initialiser: How the weights of maps start.
        vocabulary: Number of token ids V; 0 where it is not known, as when layers are priced by themselves.
        convolutions: The short convolutions of the block.
        separate_inputs: Whether the mixer gets one input each for queries, keys and values, [K, B, T, 3, D].
    """

    pack: int
    width: int
    heads: int
    depth: int
    context: int
    causal: bool
    head_width: int = 0
    init_std: float = 0.02
    positions: PositionSpec | None = None
    window: int | None = None
    cross: bool = False
    layer: int = 0
    sublayers: tuple[Sublayer, ...] = ("mixer", "mlp")
    initialiser: InitialiserSpec = field(default_factory=InitialiserSpec.default)
    vocabulary: int = 0
    convolutions: ConvolutionsSpec = NO_CONVOLUTIONS
    separate_inputs: bool = False

    def __post_init__(self) -> None:
        if not self.head_width:
            object.__setattr__(self, "head_width", self.width // self.heads)

    @property
    def inner_width(self) -> int:
        """Width of all heads together, H·d_h."""
        return self.heads * self.head_width

    def shared(self, name: str, *sizes: int) -> SharedTensor:
        """A tensor [K, B, T, *sizes] that this layer publishes."""
        return SharedTensor(name, self.layer, sizes)

    def stream(self, layer: int) -> SharedTensor:
        """The output of a layer; of `EMBEDDING`, the input of the first layer."""
        return SharedTensor("stream", layer, (self.width,))

    @property
    def tokens(self) -> SharedTensor:
        """The token ids that a decoder reads, [K, B, T]."""
        return SharedTensor("tokens", EMBEDDING, ())

    def initial(self, role: Role, inputs: int, outputs: int) -> Initial:
        """The function that initialises a weight [inputs, outputs].

        Args:
            inputs: Its fan-in.
            outputs: Its fan-out.
        """
        return self.initialiser.initial(role, inputs, outputs, self)

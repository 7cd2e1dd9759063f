"""`LayerContext`: facts about the model that the parts of a layer (mixer, MLP, norms, residual) are built from."""

from __future__ import annotations

from dataclasses import dataclass, field

from ablate.spec.initialiser import Initial, InitialiserSpec, Role
from ablate.spec.part import EMBEDDING, SharedTensor, Sublayer
from ablate.spec.position import PositionSpec


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
            role: Role of the weight.
            inputs: Its fan-in.
            outputs: Its fan-out.
        """
        return self.initialiser.initial(role, inputs, outputs, self)

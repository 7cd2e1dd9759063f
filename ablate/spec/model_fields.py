"""`ModelFields`: a stack of blocks, the block of each of its layers, and what is around: embedding, loops, heads."""

from __future__ import annotations

import copy
import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from ablate.spec.activations import Activation
from ablate.spec.annotations import default_kind
from ablate.spec.base import Spec, below, refusal
from ablate.spec.block import BlockSpec
from ablate.spec.convolution import NO_CONVOLUTIONS
from ablate.spec.layer import (
    Initialiser,
    InitialiserSpec,
    LayerContext,
    Position,
    PositionSpec,
)
from ablate.spec.paths import lay_over, leaves, overlaps
from ablate.spec.sublayers import Mixer, MixerSpec, Norm, NormSpec


class BigramSpec(Spec):
    """A second embedding table, for pairs of neighbouring tokens, which share its rows by a hash.

    Row (36313·t_i XOR 27191·t_{i-1}) mod (R - 1) of R rows is added to the embedding of token i, the last row to that
    of the first token. The rows start at 0 (modded-nanogpt, record of 2026-01-19).
    """

    factor: float = Field(default=5.0, gt=0)
    """Rows R for each id of the vocabulary."""
    width: int | None = Field(default=None, ge=1)
    """Width of the table, where it is another than the model's; a map takes it to that width."""

    def rows(self, vocabulary: int) -> int:
        """R, for a vocabulary of this many ids; at least two."""
        return max(2, round(self.factor * vocabulary))


class SmearSpec(Spec):
    """Each embedding takes in a share of the one before: e_t + λ σ(w·e_t[:m]) e_{t-1}, λ and w trained from 0.

    modded-nanogpt, record of 2025-09-18 ("smear").
    """

    inputs: int = Field(default=12, ge=1)
    """m, the first entries of an embedding that the share is computed from."""


class HeadTransformSpec(Spec):
    """A dense layer between the blocks and the map to logits: N(act(W·x + b)), W [D, D].

    The head of masked language models (BERT, arXiv:1810.04805; ModernBERT, arXiv:2412.13663, whose W has no b).
    """

    activation: Activation = "gelu"
    """act."""
    bias: bool = True
    """Whether there is a b."""
    norm: Norm = default_kind(NormSpec)
    """N."""


class MultiTokenSpec(Spec):
    """Tokens after the next one, predicted in training alone: a loss is added for each.

    `modules`: token i + 1 + k is predicted from h_k = Block_k(W_k [N(e_{i+k}); N(h_{k-1})]), h_0 being what the blocks
    of the model give, through the model's own final norm, embedding and head (DeepSeek-V3, arXiv:2412.19437, eqs 21 to
    25). `same_logits`: the logits of the next token are scored on the tokens after it too (modded-nanogpt).
    """

    form: Literal["modules", "same_logits"] = "modules"
    """Whether each further token has its own module, instead of the logits of the next token."""
    weights: tuple[float, ...] = Field(default=(0.3,), min_length=1, max_length=16)
    """Weight of the mean loss of each token after the next one, but for those that the loss of the task ignores."""

    @model_validator(mode="after")
    def _counts_each_token(self) -> Self:
        for index, weight in enumerate(self.weights):
            if weight <= 0:
                rule = "a token whose loss has no weight above 0 is not predicted"
                raise refusal(("weights", index), weight, rule, "Set it above 0, or leave it out.")
        return self


class HeadSpec(Spec):
    """What an encoder's tokens become: one vector (pooling), then a small MLP to the classes."""

    pooling: Literal["cls", "mean", "first"] = "cls"
    """`cls`: a learnt token before the first, to which no position is added; `mean`: over the real tokens; `first`: the
    first real token (what Long Range Arena's dual encoder reads)."""
    start: Literal["zero", "normal"] = "zero"
    """How the token of `cls` starts: at 0 (Long Range Arena's code), or as the model's initialiser says for embeddings
    (BERT)."""
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Widths of hidden layers between the pooled vector and the classes."""
    activation: Literal["relu", "gelu", "silu"] = "gelu"
    """Nonlinearity of the hidden layers."""
    features: Literal["pair", "interaction"] = "pair"
    """Of a dual encoder: `pair` gives [a, b] to the classifier, `interaction` [a, b, a∘b, a-b]."""

    @model_validator(mode="after")
    def _has_a_token_to_start(self) -> Self:
        if self.start != "zero" and self.pooling != "cls":
            rule = "only `pooling: cls` has a token of its own to start"
            raise refusal(("start",), self.start, rule, "Leave `start` out, or set `pooling: cls`.")
        return self


class CrossSpec(Spec):
    """The decoder of an encoder-decoder: its depth, and the attention that reads the encoder's output."""

    depth: int = Field(ge=1, le=1000)
    """Number of decoder blocks."""
    mixer: Mixer
    """The mixer that reads keys and values from the encoder's output."""


class LoopSpec(Spec):
    """Layers `first` to `last`, passed through `times` times in a row with shared weights.

    One layer in a loop is ALBERT's sharing (arXiv:1909.11942); a loop in the middle is the core of a recurrent-depth
    model (arXiv:2502.05171).
    """

    first: int = Field(ge=0)
    """Index of the first layer, from 0."""
    last: int = Field(ge=0)
    """Index of the last layer."""
    times: int = Field(ge=2, le=1000)
    """Passes."""


_SELECTOR = re.compile(r"first|last|(?P<low>\d+)(?:-(?P<high>\d+))?")

Layers = list[tuple[tuple[str, ...], BlockSpec]]
"""For every layer, the path at which its block is written (`block`, or the last exception) and its spec."""
Settings = Mapping[str, Any]
"""Paths below a block to their values."""


@dataclass(frozen=True, slots=True)
class PlacedMixer:
    """A mixer, and where it is in a model.

    Attributes:
        home: Where its block is written.
        block: That block.
        mixer_home: Where the mixer is written.
        causal: Whether it hides the future.
        cross: Whether it reads another sequence.
    """

    home: tuple[str, ...]
    block: BlockSpec
    mixer_home: tuple[str, ...]
    mixer: MixerSpec
    layer: int
    causal: bool
    cross: bool

    def positions(self, of_model: PositionSpec) -> tuple[PositionSpec, tuple[str, ...]]:
        """The positions of the layer, and the path at which they are written."""
        if self.block.positions is not None:
            return self.block.positions, (*self.home, "positions")
        return of_model, ("positions",)


def layers_of(block: BlockSpec, depth: int, pattern: Sequence[Settings], exceptions: Mapping[str, Settings]) -> Layers:
    """Lay `pattern` and `exceptions` over the block of each layer.

    Args:
        block: The block of layers without other settings.
        pattern: Settings of layer i at index i modulo its length.
        exceptions: Selector of layers to their settings.

    Raises:
        ValidationError: A selector is wrong, two exceptions set one path of one layer, or a block is invalid.
    """
    layers: Layers = [(("block",), block)] * depth
    plain = block.model_dump(mode="json") if exceptions or pattern else {}
    changed: dict[int, dict[str, Any]] = {}
    for index in range(depth if pattern else 0):
        turn = index % len(pattern)
        changed[index] = copy.deepcopy(plain)
        lay_over(changed[index], pattern[turn])
        try:
            layers[index] = (("pattern", str(turn)), BlockSpec.model_validate(changed[index]))
        except ValidationError as error:
            raise below(("pattern", turn), error) from None
    for selector, settings in exceptions.items():
        home = ("exceptions", selector)
        _check_alone(selector, depth, exceptions)
        for index in _selected_layers(selector, depth):
            lay_over(changed.setdefault(index, copy.deepcopy(plain)), settings)
            try:
                layers[index] = (home, BlockSpec.model_validate(changed[index]))
            except ValidationError as error:
                raise below(home, error) from None
    return layers


def _check_alone(selector: str, depth: int, exceptions: Mapping[str, Settings]) -> None:
    """Refuse an exception that sets for some layer what an earlier exception sets too."""
    layers, paths = _selected_layers(selector, depth), leaves(exceptions[selector])
    for other in itertools.takewhile(lambda one: one != selector, exceptions):
        shared = sorted({*layers} & {*_selected_layers(other, depth)})
        twice = [path for path in paths if any(overlaps(path, before) for before in leaves(exceptions[other]))]
        if shared and twice:
            raise refusal(
                ("exceptions", selector),
                selector,
                f"`{other}` and `{selector}` both set `{twice[0]}` of layer {shared[0]}",
                "Let each layer have it from one of them.",
            )


def _selected_layers(selector: str, depth: int) -> range:
    match = _SELECTOR.fullmatch(selector)
    if match is None:
        raise refusal(
            ("exceptions", selector),
            selector,
            "a selector of layers is `first`, `last`, an index from 0, or a range such as `2-4`",
            "Write the layers that differ in one of these forms.",
            kind="no_selector",
        )
    if match["low"] is None:
        low = high = 0 if selector == "first" else depth - 1
    else:
        low = int(match["low"])
        high = int(match["high"]) if match["high"] else low
    if low > high:
        rule = "a range goes from its first layer to its last"
        raise refusal(("exceptions", selector), selector, rule, f"Write `{high}-{low}`.", kind="no_selector")
    if high >= depth:
        raise refusal(
            ("exceptions", selector),
            selector,
            f"the layers are numbered 0 to {depth - 1}",
            "Name layers that exist.",
        )
    return range(low, high + 1)


class ModelFields(Spec):
    """The fields of a model, and the layers that follow from them; `ModelSpec` is a model whose parts fit together."""

    family: Literal["decoder", "encoder", "dual_encoder", "encoder_decoder"]
    """`decoder`: a causal language model. `encoder`: sees both sides; with `head` a classifier, without one a masked
    language model. `dual_encoder`: one encoder for two texts, and a classifier over both. `encoder_decoder`: reads one
    text and writes another (arXiv:1706.03762)."""
    depth: int = Field(ge=1, le=1000)
    """Number of blocks."""
    width: int = Field(ge=1)
    """Width d of the residual stream."""
    heads: int = Field(default=1, ge=1)
    """Heads H; kinds of mixer without heads ignore it."""
    head_width: int | None = Field(default=None, ge=1)
    """Width of a head; unless set, width/heads. A block may set its own."""
    block: BlockSpec
    """The block that every layer has, exceptions apart: a block spec, or the name of a block."""
    exceptions: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Layers that differ: `first`, `last`, an index counted from 0 or a range `2-4`, each with the part of a block
    spec that is laid over `block` (mappings merge key by key; one that names a `kind` replaces)."""
    pattern: tuple[dict[str, Any], ...] = ()
    """Parts of a block spec laid over `block` in turn, layer by layer, again from the start when all were used."""
    loops: tuple[LoopSpec, ...] = ()
    """Runs of layers that are passed through several times, in the order of the layers. `depth` counts each layer
    once."""
    head: HeadSpec | None = None
    """The classifier of an encoder or dual encoder."""
    decoder: CrossSpec | None = None
    """The decoder of an encoder-decoder; its blocks are `block` (`exceptions` and `pattern` are of the encoder) with a
    cross-attention sub-layer between the two."""
    positions: Position = default_kind(PositionSpec)
    """Added to the token embedding (`learned`, `sinusoidal`), or applied by the mixer of every layer (`rotary`,
    `alibi`); a block may set its own."""
    embedding_scale: Literal["none", "sqrt_width"] = "none"
    """`sqrt_width`: embeddings are multiplied by √d (arXiv:1706.03762, §3.4)."""
    bigram: BigramSpec | None = None
    """A hashed embedding of pairs of tokens, added to the token embedding."""
    smear: SmearSpec | None = None
    """A share of the embedding before, added to each embedding."""
    segments: int = Field(default=0, ge=0, le=1000)
    """Rows of a table by segment (BERT has two, for pairs of texts). A text by itself is segment 0: that row is added
    to all its embeddings. 0: there is no table."""
    embedding_map: bool = False
    """Whether a dense map with a bias follows positions and `embedding_norm` (FNet)."""
    embedding_norm: Norm | None = None
    """Norm of the sum of token embedding and positions, before the first block (BERT, ModernBERT, RWKV-7)."""
    tied_head: bool = True
    """Whether the output matrix is the token embedding."""
    head_transform: HeadTransformSpec | None = None
    """A dense layer, activation and norm before the output matrix (BERT's head of masked tokens)."""
    logit_scale: Literal["none", "inverse_sqrt_width"] = "none"
    """`inverse_sqrt_width`: what the output matrix multiplies is divided by √d (T5, whose embeddings are not small)."""
    head_bias: bool = False
    """Whether the logits of tokens have a bias, one for each token."""
    logit_cap: float | None = Field(default=None, gt=0)
    """c: the logits of tokens z become c·tanh(z/c) (Gemma 2, arXiv:2408.00118, eq. 1)."""
    z_loss: float = Field(default=0.0, ge=0)
    """Weight of a loss, the mean of (log Σ exp z)² over the outputs that the loss of the task reads, in training alone
    (PaLM, arXiv:2204.02311, §5)."""
    multi_token: MultiTokenSpec | None = None
    """Tokens after the next one that are predicted too, in training alone."""
    final_norm: Norm = default_kind(NormSpec)
    """Norm after the last block."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on embeddings plus positions."""
    init_std: float = Field(default=0.02, gt=0)
    """Standard deviation of normal initial values (embeddings and dense maps)."""
    initialiser: Initialiser = default_kind(InitialiserSpec)
    """How the weights of embeddings and dense maps start; a mixer may have weights that start in their own way."""

    @functools.cached_property
    def order(self) -> tuple[int, ...]:
        """Indices of the layers in the order in which a text passes through them."""
        order: list[int] = []
        loops = {loop.first: loop for loop in self.loops}
        layer = 0
        while layer < self.depth:
            loop = loops.get(layer)
            last = layer if loop is None else loop.last
            order += [*range(layer, last + 1)] * (1 if loop is None else loop.times)
            layer = last + 1
        return tuple(order)

    @property
    def causal(self) -> bool:
        """Whether position t may not see positions after t."""
        return self.family == "decoder"

    @property
    def blocks(self) -> tuple[BlockSpec, ...]:
        """The spec of every layer, exceptions applied."""
        return tuple(block for _, block in self.layers)

    def layer_context(
        self,
        context: int,
        pack: int = 1,
        *,
        layer: int = 0,
        causal: bool | None = None,
        cross: bool = False,
        vocabulary: int = 0,
    ) -> LayerContext:
        """The context that the parts of a layer get.

        Args:
            context: The longest input in tokens.
            pack: K.
            layer: Index of the layer; of an encoder-decoder, in the decoder where the future is hidden.
            causal: Whether the future is hidden; None: as the family has it.
            cross: Whether keys and values come from another sequence.
            vocabulary: Number of token ids; 0 where it is not known.
        """
        causal = self.causal if causal is None else causal
        in_decoder = self.decoder is not None and (causal or cross)
        block = self.block if in_decoder else self.layers[layer][1]
        positions = block.positions or self.positions
        # A CLS token precedes the text.
        extra = 1 if self.head is not None and self.head.pooling == "cls" else 0
        made = LayerContext(
            pack=pack,
            width=self.width,
            heads=self.heads,
            head_width=block.head_width or self.head_width or 0,
            depth=self.decoder.depth if self.decoder is not None and in_decoder else self.depth,
            context=context + extra,
            causal=causal and not cross,
            init_std=self.init_std,
            initialiser=self.initialiser,
            positions=positions if positions.in_layers and not cross else None,
            window=None if cross else block.window,
            cross=cross,
            layer=layer,
            sublayers=block.sublayers,
            vocabulary=vocabulary,
            convolutions=NO_CONVOLUTIONS if cross else block.convolutions,
        )
        return replace(made, separate_inputs=True) if not cross and block.residual.separates_inputs(made) else made

    def placed_mixers(self) -> Iterator[PlacedMixer]:
        """Every mixer, and where it is."""
        for layer, (home, block) in enumerate(self.layers):
            yield PlacedMixer(home, block, (*home, "mixer"), block.mixer, layer, self.causal, cross=False)
        if self.decoder is not None:
            home, block = ("block",), self.block
            yield PlacedMixer(home, block, (*home, "mixer"), block.mixer, 0, causal=True, cross=False)
            yield PlacedMixer(home, block, ("decoder", "mixer"), self.decoder.mixer, 0, causal=False, cross=True)

    @functools.cached_property
    def layers(self) -> Layers:
        """Every layer: where its block is written, and the block."""
        return layers_of(self.block, self.depth, self.pattern, self.exceptions)

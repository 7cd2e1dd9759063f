"""`ModelSpec`: a stack of blocks with embedding and head."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, ValidationInfo, model_validator

from ablate.spec.annotations import default_kind
from ablate.spec.base import Spec, below, cached_structure, refusal
from ablate.spec.block import BlockSpec
from ablate.spec.layer import (
    Initialiser,
    InitialiserSpec,
    LayerContext,
    ParameterInfo,
    PartSpec,
    Position,
    PositionSpec,
    RateScaling,
)
from ablate.spec.model_fields import LayerPlace, Layers, layers_of
from ablate.spec.model_parts import (
    BigramSpec,
    CrossSpec,
    HeadSpec,
    HeadTransformSpec,
    LoopSpec,
    MultiTokenSpec,
    SmearSpec,
)
from ablate.spec.model_rules import check_model
from ablate.spec.named import expand_block, expand_model
from ablate.spec.sublayers import Norm, NormSpec


class ModelSpec(Spec):
    """A model: `depth` blocks of one spec, with exceptions for the layers that differ."""

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

    @model_validator(mode="before")
    @classmethod
    def _name_a_model_or_block(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str) or (isinstance(value, dict) and isinstance(value.get("name"), str)):
            value = expand_model(value, (info.context or {}).get("folders", ()))
        if isinstance(value, dict) and isinstance(value.get("block"), str):
            return expand_block(value, (info.context or {}).get("folders", ()))
        return value

    @model_validator(mode="wrap")
    @classmethod
    def _is_a_model(cls, value: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(value, cls):
            return value  # it is frozen, and was checked when it was made
        model = validate(value)
        check_model(model, model._layers, model._places())
        return model

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

    def _positions(self, place: LayerPlace) -> tuple[PositionSpec, tuple[str, ...]]:
        return place.positions(self.positions)

    def check_documents(self) -> None:
        """Refuse what cannot keep the documents of one window apart.

        Raises:
            ValidationError: With the path below this spec.
        """
        for place in self._places():
            if not place.mixer.separates_documents():
                raise refusal(
                    (*place.mixer_home, "kind"),
                    place.mixer.kind_name(),
                    f"the task has `separate_documents`, and {place.mixer.kind_name()} with these settings cannot keep"
                    " documents apart",
                    "Use attention (with `matmul_order: qk_first`), differential_attention or latent_attention, or"
                    " leave `separate_documents` out.",
                )
        for name in ("bigram", "smear", "multi_token"):
            if getattr(self, name) is not None:
                raise refusal(
                    (name,),
                    getattr(self, name),
                    f"the task has `separate_documents`, and `{name}` reads neighbours across documents",
                    f"Leave `{name}` out, or leave `separate_documents` out.",
                )

    def check_context(self, context: int) -> None:
        """Refuse a longest input that a mixer of this model cannot work on.

        Raises:
            ValidationError: With the path below this spec.
        """
        if self.multi_token is not None and len(self.multi_token.weights) >= context:
            raise refusal(
                ("multi_token", "weights"),
                list(self.multi_token.weights),
                f"an input of {context} tokens has no token so far after the next one",
                f"Give at most {context - 1} weights." if context > 1 else "Leave `multi_token` out.",
            )
        for place in self._places():
            layer_context = self.layer_context(context, layer=place.layer, causal=place.causal, cross=place.cross)
            parts: list[tuple[tuple[str, ...], PartSpec | PositionSpec, LayerContext]]
            parts = [(place.mixer_home, place.mixer, layer_context)]
            if not place.cross:
                parts += [
                    ((*place.home, "mlp"), place.block.mlp, layer_context),
                    ((*place.home, "residual"), place.block.residual, layer_context),
                ]
            if layer_context.positions is not None:
                parts.append(
                    (self._positions(place)[1], layer_context.positions, place.mixer.positions_context(layer_context))
                )
            for home, part, its_context in parts:
                try:
                    part.check(its_context)
                except ValidationError as error:
                    raise below(home, error) from None

    @property
    def causal(self) -> bool:
        """Whether position t may not see positions after t."""
        return self.family == "decoder"

    @property
    def blocks(self) -> tuple[BlockSpec, ...]:
        """The spec of every layer, exceptions applied."""
        return tuple(block for _, block in self._layers)

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
        block = self.block if in_decoder else self._layers[layer][1]
        positions = block.positions or self.positions
        # A CLS token precedes the text.
        extra = 1 if self.head is not None and self.head.pooling == "cls" else 0
        return LayerContext(
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
        )

    def rate_scaling(self, parameter: ParameterInfo) -> RateScaling:
        """What the optimizer's options are multiplied by for a parameter."""
        return self.initialiser.scaling(parameter, self.layer_context(1))

    def canonical(self) -> Any:
        """As any spec, but `depth`, `exceptions` and `pattern` are written as runs of equal layers.

        So is `block`, but that it stays beside them where a decoder is made of it.
        """
        plain = super().canonical()
        plain_block = plain["block"]
        runs: list[list[Any]] = []
        for _, same in itertools.groupby(self.blocks, key=id):  # layers without an exception share one spec
            block, *others = same
            layer = plain_block if block is self.block else block.canonical()
            if runs and runs[-1][1] == layer:
                runs[-1][0] += 1 + len(others)
            else:
                runs.append([1 + len(others), layer])
        for name in ("depth", "exceptions", "pattern", *(() if self.decoder is not None else ("block",))):
            plain.pop(name, None)
        for name in ("final_norm", "positions"):  # a kind with its defaults is written as its name
            if name in plain and plain[name].keys() == {"kind"}:
                plain[name] = plain[name]["kind"]
        if self.head_width is not None and self.head_width * self.heads == self.width:
            del plain["head_width"]
        plain["layers"] = runs
        return plain

    def structure(self) -> Any:
        """As any spec, layer by layer."""
        plain = super().structure()
        for name in ("depth", "exceptions", "pattern", *(() if self.decoder is not None else ("block",))):
            del plain[name]
        plain["layers"] = [cached_structure(block) for block in self.blocks]
        return plain

    def specs_beside(self) -> tuple[BlockSpec, ...]:
        """The blocks of layers that differ."""
        return self.blocks if self.exceptions or self.pattern else ()

    @property
    def fusable(self) -> bool:
        """Whether trials of this model can be members of one pack: every part keeps the pack axis apart."""
        return all(
            place.mixer.pack_aware and place.block.mlp.pack_aware and place.block.residual.pack_aware
            for place in self._places()
        )

    def _places(self) -> Iterator[LayerPlace]:
        """Every mixer with its place."""
        for layer, (home, block) in enumerate(self._layers):
            yield LayerPlace(home, block, (*home, "mixer"), block.mixer, layer, self.causal, cross=False)
        if self.decoder is not None:
            home, block = ("block",), self.block
            yield LayerPlace(home, block, (*home, "mixer"), block.mixer, 0, causal=True, cross=False)
            yield LayerPlace(home, block, ("decoder", "mixer"), self.decoder.mixer, 0, causal=False, cross=True)

    @functools.cached_property
    def _layers(self) -> Layers:
        return layers_of(self.block, self.depth, self.pattern, self.exceptions)

"""`ModelSpec`: a stack of blocks with embedding and head."""

from __future__ import annotations

import copy
import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, model_validator

from ablate.spec.annotations import default_kind
from ablate.spec.base import Spec, below, largest_divisor, refusal
from ablate.spec.block import BlockSpec, GainsSpec, SkipsSpec
from ablate.spec.embedding import BigramSpec, HeadTransformSpec, MultiTokenSpec, SmearSpec
from ablate.spec.initialiser import Initialiser, InitialiserSpec, RateScaling
from ablate.spec.layer import LayerContext
from ablate.spec.loop import LoopSpec
from ablate.spec.mixer import Mixer, MixerSpec
from ablate.spec.named import expand_block, expand_model
from ablate.spec.norm import Norm, NormSpec
from ablate.spec.parameter import ParameterInfo
from ablate.spec.part import EMBEDDING, PartSpec, SharedTensor
from ablate.spec.paths import lay_over, leaves, overlaps
from ablate.spec.position import Position, PositionSpec
from ablate.spec.residual import ResidualSpec

_SELECTOR = re.compile(r"first|last|(?P<low>\d+)(?:-(?P<high>\d+))?")


@dataclass(frozen=True, slots=True)
class _Place:
    """A mixer and its place in a model.

    Attributes:
        home: Where its block is written.
        block: That block.
        mixer_home: Where the mixer is written.
        mixer: The mixer.
        layer: Index of the layer.
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


class HeadSpec(Spec):
    """What an encoder's tokens become: one vector (pooling), then a small MLP to the classes."""

    pooling: Literal["cls", "mean", "first"] = "cls"
    """`cls`: a learnt token before the first, to which no position is added; `mean`: over the real tokens; `first`: the
    first real token (what Long Range Arena's dual encoder reads)."""
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Widths of hidden layers between the pooled vector and the classes."""
    activation: Literal["relu", "gelu", "silu"] = "gelu"
    """Nonlinearity of the hidden layers."""
    features: Literal["pair", "interaction"] = "pair"
    """Of a dual encoder: `pair` gives [a, b] to the classifier, `interaction` [a, b, a∘b, a-b]."""


class CrossSpec(Spec):
    """The decoder of an encoder-decoder: its depth, and the attention that reads the encoder's output."""

    depth: int = Field(ge=1, le=1000)
    """Number of decoder blocks."""
    mixer: Mixer
    """The mixer that reads keys and values from the encoder's output."""


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
    """Weight of a loss, the mean of (log Σ exp z)² over the tokens, in training alone (PaLM, arXiv:2204.02311, §5)."""
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

    @model_validator(mode="after")
    def _is_a_model(self) -> Self:
        self._check_family()
        transform = None if self.head_transform is None else self.head_transform.norm
        for home, norm, where in (
            (("final_norm",), self.final_norm, "the final norm has one place: after the last block"),
            (("embedding_norm",), self.embedding_norm, "the norm of embeddings has one place: before the first block"),
            (("head_transform", "norm"), transform, "this norm has one place: before the output matrix"),
        ):
            if norm is not None and norm.place != "pre":
                raise refusal((*home, "place"), norm.place, where, "Leave `place` out.")
        checked: set[tuple[int, bool, bool]] = set()
        for place in self._places():
            like = (id(place.block), place.causal, place.cross)
            if like not in checked:  # layers without an exception share one block
                checked.add(like)
                self._check_forms(place)
                self._check_settings(place)
        if self.decoder is not None:
            self._check_decoder_block(self.block)
            self._check_alone_in_layer(("decoder", "mixer"), self.decoder.mixer)
        self._check_streams()
        self._check_shared()
        self._check_ends()
        self._check_loops()
        return self

    def _check_ends(self) -> None:
        """Refuse what this family's embedding or head cannot do."""
        for name in ("bigram", "smear"):
            if getattr(self, name) is not None and self.family == "encoder_decoder":
                rule = "the embedding of an encoder-decoder reads two texts and looks at one token at a time"
                raise refusal((name,), getattr(self, name), rule, f"Leave `{name}` out, or set `family: decoder`.")
        if self.smear is not None and self.smear.inputs > self.width:
            rule = f"an embedding has {self.width} entries"
            raise refusal(("smear", "inputs"), self.smear.inputs, rule, f"Set it to at most {self.width}.")
        for name in ("logit_cap", "z_loss", "head_transform", "head_bias", "logit_scale"):
            if getattr(self, name) not in (None, 0, False, "none") and self.head is not None:
                rule = f"it belongs to the logits of tokens, and {self._a_family} with `head` has none"
                raise refusal((name,), getattr(self, name), rule, f"Leave `{name}` out.")
        if self.initialiser.scales_rates and (self.head is not None or self.decoder is not None):
            rule = f"{self.initialiser.kind_name()} scales models of one stack with a head of tokens"
            remedy = "Choose another initialiser, or a decoder or encoder of tokens."
            raise refusal(("initialiser",), self.initialiser.kind_name(), rule, remedy)
        if self.multi_token is None:
            return
        if self.family != "decoder":
            rule = f"{self._a_family} does not predict the next token, so that no token comes after it"
            raise refusal(
                ("multi_token",), self.multi_token, rule, "Leave `multi_token` out, or set `family: decoder`."
            )
        if self.multi_token.form == "modules" and self.block.shares:
            rule = "the blocks of its modules are not layers, but `block` shares tensors with other layers"
            raise refusal(
                ("multi_token", "form"),
                "modules",
                rule,
                "Set `form: same_logits`, or choose parts of `block` that share nothing.",
            )

    def _check_loops(self) -> None:
        """Refuse loops over layers that are not there, and loops that overlap."""
        end = -1
        for index, loop in enumerate(self.loops):
            if loop.last >= self.depth or loop.first > loop.last:
                rule = (
                    f"a loop goes from a layer to the same or a later one, and they are numbered 0 to {self.depth - 1}"
                )
                raise refusal(("loops", index, "last"), loop.last, rule, "Name layers that exist, in their order.")
            if loop.first <= end:
                rule = f"loops are listed in the order of the layers and do not overlap; the one before ends at {end}"
                raise refusal(("loops", index, "first"), loop.first, rule, f"Let it begin at {end + 1} or later.")
            end = loop.last

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

    def _check_family(self) -> None:
        heads = {"decoder": (False,), "encoder": (False, True), "dual_encoder": (True,), "encoder_decoder": (False,)}
        has_head = self.head is not None
        if has_head not in heads[self.family]:
            need = "needs a `head`" if not has_head else "gives tokens, and has no `head`"
            remedy = "Add `head: {pooling: cls}`." if not has_head else "Leave `head` out, or set `family: encoder`."
            raise refusal(("head",), self.head, f"{self._a_family} {need}", remedy)
        if (self.decoder is not None) != (self.family == "encoder_decoder"):
            need = "needs a `decoder`" if self.decoder is None else "has no `decoder` part"
            remedy = (
                "Add `decoder: {depth: 6, mixer: attention}`."
                if self.decoder is None
                else "Leave `decoder` out, or set `family: encoder_decoder`."
            )
            raise refusal(("decoder",), self.decoder, f"{self._a_family} {need}", remedy)
        if self.head is not None and self.head.features == "interaction" and self.family != "dual_encoder":
            raise refusal(
                ("head", "features"),
                "interaction",
                f"interactions are between two texts, and {self._a_family} reads one",
                "Leave `features` out, or set `family: dual_encoder`.",
            )

    def _check_forms(self, place: _Place) -> None:
        """Refuse a mixer that has no form for its place."""
        home, mixer, causal, cross = (*place.mixer_home, "kind"), place.mixer, place.causal, place.cross
        if causal and not mixer.causal_form:
            raise refusal(
                home,
                mixer.kind_name(),
                f"{self._a_family} must hide the future, and {mixer.kind_name()} has no causal form",
                "Choose a mixer that `ablate kinds` lists as causal.",
            )
        if not causal and not mixer.bidirectional_form:
            raise refusal(
                home,
                mixer.kind_name(),
                f"{self._a_family} sees both sides, and {mixer.kind_name()} has only a causal form",
                "Choose a mixer that `ablate kinds` lists as bidirectional.",
            )
        if cross and not mixer.cross_form:
            raise refusal(
                home,
                mixer.kind_name(),
                f"{mixer.kind_name()} cannot read keys and values from another sequence",
                "Set `decoder.mixer: attention`.",
            )

    def _check_settings(self, place: _Place) -> None:
        """Refuse what the mixer of a layer cannot do: its positions, its window, its head width."""
        block, mixer, kind = place.block, place.mixer, place.mixer.kind_name()
        positions, heads_home = self._positions(place)
        if not place.cross and positions.in_layers and positions.applied not in mixer.relative_positions:
            raise refusal(
                heads_home,
                positions.kind_name(),
                f"{positions.kind_name()} positions are applied by the mixer, and {kind} does not",
                "Set `positions` to learned, sinusoidal or none, or choose the mixer `attention`.",
            )
        if block.window is not None and not place.cross and not mixer.takes_window:
            raise refusal(
                (*place.home, "window"),
                block.window,
                f"the mixer {kind} has no window",
                "Leave `window` out, or choose the mixer `attention`.",
            )
        self._check_heads(place)

    def _check_heads(self, place: _Place) -> None:
        block, mixer, kind = place.block, place.mixer, place.mixer.kind_name()
        set_by_block = block.head_width is not None
        head_width, home = block.head_width or self.head_width, (*place.home, "head_width")
        if not mixer.uses_heads:
            if set_by_block and not place.cross:
                raise refusal(home, head_width, f"the mixer {kind} has no heads", "Leave `head_width` out.")
        elif head_width is None and self.width % self.heads:
            near = largest_divisor(self.width, self.heads)
            raise refusal(
                ("heads",),
                self.heads,
                f"the heads must divide the width, which is {self.width}",
                f"Set `heads: {near}`, or a width that is a multiple of {self.heads}.",
            )
        elif head_width is not None and head_width * self.heads != self.width and not mixer.any_head_width:
            raise refusal(
                home if set_by_block else ("head_width",),
                head_width,
                f"the {self.heads} heads of {kind} share the width, which is {self.width}",
                "Leave `head_width` out, or choose the mixer `attention`.",
            )

    def _positions(self, place: _Place) -> tuple[PositionSpec, tuple[str, ...]]:
        """The positions of a layer, and where they are written."""
        if place.block.positions is not None:
            return place.block.positions, (*place.home, "positions")
        return self.positions, ("positions",)

    @staticmethod
    def _check_alone_in_layer(home: tuple[str, ...], part: PartSpec) -> None:
        """Refuse a part that shares tensors where layers cannot."""
        if part.shares:
            raise refusal(
                home,
                part.kind_name(),
                "the decoder of an encoder-decoder shares no tensors between its layers",
                "Choose another kind or other settings, or set `family: decoder`.",
            )

    def _check_decoder_block(self, block: BlockSpec) -> None:
        plain = block.arrangement == "sequential" and block.skips == SkipsSpec() and block.mlp.present
        if not plain or block.gains != GainsSpec():
            raise refusal(
                ("block",),
                block.arrangement,
                "the blocks of a decoder that reads an encoder are sequential, with an MLP, one skip round each part "
                "and no gains",
                "Use a block such as `post_ln` or `pre_ln`.",
            )
        if any(norm.on_output for norm in block.norms):
            raise refusal(
                ("block", "norm", "place"),
                block.norms[0].place,
                "a decoder that reads an encoder has its norms before the sub-layers or after the sums",
                "Set `norm.place` to pre or post.",
            )
        if block.residual != ResidualSpec.default():
            raise refusal(
                ("block", "residual"),
                block.residual.kind_name(),
                "the blocks of a decoder that reads an encoder have plain residuals",
                "Leave `residual` out.",
            )
        for name, part in (("mixer", block.mixer), ("mlp", block.mlp)):
            self._check_alone_in_layer(("block", name), part)

    def _check_streams(self) -> None:
        """Refuse a layer whose stream has other sizes than that of the layer before it."""
        if all(block is self.block or block.residual == self.block.residual for _, block in self._layers):
            return
        before: tuple[int, ...] | None = None
        for layer, (home, block) in enumerate(self._layers):
            sizes = block.residual.stream_sizes(self.layer_context(1, layer=layer))
            if before is not None and sizes != before:
                raise refusal(
                    (*home, "residual"),
                    block.residual.kind_name(),
                    f"layer {layer} has a stream of sizes {sizes}, and layer {layer - 1} gives one of sizes {before}",
                    "Set the same `residual` in all layers.",
                )
            before = sizes

    def _check_shared(self) -> None:
        """Refuse a layer that reads what no earlier layer publishes."""
        blocks = {id(block): block for _, block in self._layers}
        if not any(block.shares for block in blocks.values()):
            return
        published = {self.layer_context(1).stream(EMBEDDING)}
        if self.causal:
            published.add(self.layer_context(1).tokens)
        for layer, (home, block) in enumerate(self._layers):
            told, gives = self.layer_context(1, layer=layer), set[SharedTensor]()
            for name, part in block.parts:
                if part.shares and not part.pack_aware:
                    raise refusal(
                        (*home, name),
                        part.kind_name(),
                        f"{part.kind_name()} shares tensors between layers, and so must keep the pack axis apart",
                        "Write its module for [K, B, T, D], with `pack_aware = True`.",
                    )
                for wanted in part.reads(told):
                    if wanted not in published:
                        raise self._unpublished((*home, name), part, layer, wanted, published)
                gives.update(part.publishes(told))
            published |= gives | {SharedTensor("stream", layer, block.residual.stream_sizes(told))}

    @staticmethod
    def _unpublished(
        home: tuple[str, ...], part: PartSpec, layer: int, wanted: SharedTensor, published: set[SharedTensor]
    ) -> ValidationError:
        alike = [one for one in published if (one.name, one.layer) == (wanted.name, wanted.layer)]
        having = sorted(one.layer for one in published if one.name == wanted.name and one.layer >= 0)
        if alike:
            why = f"layer {wanted.layer} publishes it with the sizes {alike[0].sizes}, and {wanted.sizes} are wanted"
        elif wanted.layer >= layer:
            why = "a layer reads only what an earlier layer publishes"
        else:
            why = f"layer {wanted.layer} publishes nothing of this name"
        where = f"the layers {', '.join(map(str, having))} publish it" if having else "no layer before it publishes it"
        return refusal(
            home,
            part.kind_name(),
            f"layer {layer} reads `{wanted.name}` of layer {wanted.layer}, but {why}",
            f"Let this layer read another one ({where}), or choose another kind here.",
        )

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
        for place in self._places():
            told = self.layer_context(context, layer=place.layer, causal=place.causal, cross=place.cross)
            parts: list[tuple[tuple[str, ...], PartSpec | PositionSpec, LayerContext]]
            parts = [(place.mixer_home, place.mixer, told)]
            if not place.cross:
                parts += [
                    ((*place.home, "mlp"), place.block.mlp, told),
                    ((*place.home, "residual"), place.block.residual, told),
                ]
            if told.positions is not None:
                parts.append((self._positions(place)[1], told.positions, place.mixer.positions_context(told)))
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
        self, context: int, pack: int = 1, *, layer: int = 0, causal: bool | None = None, cross: bool = False
    ) -> LayerContext:
        """The context that the parts of a layer get.

        Args:
            context: The longest input in tokens.
            pack: K.
            layer: Index of the layer; of an encoder-decoder, in the decoder where the future is hidden.
            causal: Whether the future is hidden; None: as the family has it.
            cross: Whether keys and values come from another sequence.
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
        plain["layers"] = [block.structure() for block in self.blocks]
        return plain

    @property
    def fusable(self) -> bool:
        """Whether trials of this model can be members of one pack: every part keeps the pack axis apart."""
        return all(
            place.mixer.pack_aware and place.block.mlp.pack_aware and place.block.residual.pack_aware
            for place in self._places()
        )

    @property
    def _a_family(self) -> str:
        return f"{'an' if self.family.startswith('e') else 'a'} {self.family}"

    def _places(self) -> Iterator[_Place]:
        """Every mixer with its place."""
        for layer, (home, block) in enumerate(self._layers):
            yield _Place(home, block, (*home, "mixer"), block.mixer, layer, self.causal, cross=False)
        if self.decoder is not None:
            home, block = ("block",), self.block
            yield _Place(home, block, (*home, "mixer"), block.mixer, 0, causal=True, cross=False)
            yield _Place(home, block, ("decoder", "mixer"), self.decoder.mixer, 0, causal=False, cross=True)

    @functools.cached_property
    def _layers(self) -> list[tuple[tuple[str, ...], BlockSpec]]:
        """For every layer, where it is written (`block`, or the exception that was laid over it last) and its spec."""
        layers: list[tuple[tuple[str, ...], BlockSpec]] = [(("block",), self.block)] * self.depth
        plain = self.block.model_dump(mode="json") if self.exceptions or self.pattern else {}
        changed: dict[int, dict[str, Any]] = {}
        for index in range(self.depth if self.pattern else 0):
            turn = index % len(self.pattern)
            changed[index] = copy.deepcopy(plain)
            lay_over(changed[index], self.pattern[turn])
            try:
                layers[index] = (("pattern", str(turn)), BlockSpec.model_validate(changed[index]))
            except ValidationError as error:
                raise below(("pattern", turn), error) from None
        for selector, settings in self.exceptions.items():
            home = ("exceptions", selector)
            self._check_alone(selector)
            for index in self._selected(selector):
                block = changed.setdefault(index, copy.deepcopy(plain))
                lay_over(block, settings)
                try:
                    layers[index] = (home, BlockSpec.model_validate(block))
                except ValidationError as error:
                    raise below(home, error) from None
        return layers

    def _check_alone(self, selector: str) -> None:
        """Refuse an exception that sets for some layer what an exception before it sets: one would win unsaid."""
        layers, paths = self._selected(selector), leaves(self.exceptions[selector])
        for other in itertools.takewhile(lambda one: one != selector, self.exceptions):
            shared = sorted({*layers} & {*self._selected(other)})
            twice = [path for path in paths if any(overlaps(path, before) for before in leaves(self.exceptions[other]))]
            if shared and twice:
                raise refusal(
                    ("exceptions", selector),
                    selector,
                    f"`{other}` and `{selector}` both set `{twice[0]}` of layer {shared[0]}",
                    "Let each layer have it from one of them.",
                )

    def _selected(self, selector: str) -> range:
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
            low = high = 0 if selector == "first" else self.depth - 1
        else:
            low = int(match["low"])
            high = int(match["high"]) if match["high"] else low
        if low > high:
            rule = "a range goes from its first layer to its last"
            raise refusal(("exceptions", selector), selector, rule, f"Write `{high}-{low}`.", kind="no_selector")
        if high >= self.depth:
            raise refusal(
                ("exceptions", selector),
                selector,
                f"the layers are numbered 0 to {self.depth - 1}",
                "Name layers that exist.",
            )
        return range(low, high + 1)

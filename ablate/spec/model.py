"""`ModelSpec`: a stack of blocks with embedding and head."""

from __future__ import annotations

import copy
import functools
import itertools
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, model_validator

from ablate.spec.base import Spec, below, refusal
from ablate.spec.block import BlockSpec, GainsSpec, SkipsSpec
from ablate.spec.mixer import Mixer, MixerContext, MixerSpec
from ablate.spec.named import expand_block
from ablate.spec.paths import lay_over, leaves, overlaps

_SELECTOR = re.compile(r"first|last|(?P<low>\d+)(?:-(?P<high>\d+))?")


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
    block: BlockSpec
    """The block that every layer has, exceptions apart: a block spec, or the name of a block."""
    exceptions: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Layers that differ: `first`, `last`, an index counted from 0 or a range `2-4`, each with the part of a block
    spec that is laid over `block` (mappings merge key by key; one that names a `kind` replaces)."""
    pattern: tuple[dict[str, Any], ...] = ()
    """Parts of a block spec laid over `block` in turn, layer by layer, again from the start when all were used."""
    head: HeadSpec | None = None
    """The classifier of an encoder or dual encoder."""
    decoder: CrossSpec | None = None
    """The decoder of an encoder-decoder; its blocks are `block` (`exceptions` and `pattern` are of the encoder) with a
    cross-attention sub-layer between the two."""
    positions: Literal["learned", "sinusoidal", "rotary", "alibi", "none"] = "learned"
    """`learned` and `sinusoidal` are added to the token embedding; `rotary` and `alibi` are applied by the mixers."""
    embedding_scale: Literal["none", "sqrt_width"] = "none"
    """`sqrt_width`: embeddings are multiplied by √d (arXiv:1706.03762, §3.4)."""
    tied_head: bool = True
    """Whether the output matrix is the token embedding."""
    final_norm: Literal["rms", "layer", "none"] = "rms"
    """Norm after the last block."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on embeddings plus positions."""
    init_std: float = Field(default=0.02, gt=0)
    """Standard deviation of normal initial values (embeddings and dense maps)."""

    @model_validator(mode="before")
    @classmethod
    def _name_a_block(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, dict) and isinstance(value.get("block"), str):
            return expand_block(value, (info.context or {}).get("folders", ()))
        return value

    @model_validator(mode="after")
    def _is_a_model(self) -> Self:
        self._check_family()
        for home, mixer, causal, cross in self._mixers():
            self._check_mixer(home, mixer, causal=causal, cross=cross)
        if self.decoder is not None:
            self._check_decoder_block(self.block)
        return self

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

    def _check_mixer(self, home: tuple[str, ...], mixer: MixerSpec, *, causal: bool, cross: bool) -> None:
        if causal and not mixer.causal_form:
            raise refusal(
                (*home, "kind"),
                mixer.kind_name(),
                f"{self._a_family} must hide the future, and {mixer.kind_name()} has no causal form",
                "Choose a mixer that `ablate kinds` lists as causal.",
            )
        if not causal and not mixer.bidirectional_form:
            raise refusal(
                (*home, "kind"),
                mixer.kind_name(),
                f"{self._a_family} sees both sides, and {mixer.kind_name()} has only a causal form",
                "Choose a mixer that `ablate kinds` lists as bidirectional.",
            )
        if cross and not mixer.cross_form:
            raise refusal(
                (*home, "kind"),
                mixer.kind_name(),
                f"{mixer.kind_name()} cannot read keys and values from another sequence",
                "Set `decoder.mixer: attention`.",
            )
        if self.positions in ("rotary", "alibi") and not cross and self.positions not in mixer.relative_positions:
            raise refusal(
                ("positions",),
                self.positions,
                f"{self.positions} positions are applied by the mixer, and {mixer.kind_name()} does not",
                "Set `positions` to learned, sinusoidal or none, or choose the mixer `attention`.",
            )
        if mixer.uses_heads and self.width % self.heads:
            near = max(n for n in range(1, self.heads + 1) if self.width % n == 0)
            raise refusal(
                ("heads",),
                self.heads,
                f"the heads must divide the width, which is {self.width}",
                f"Set `heads: {near}`, or a width that is a multiple of {self.heads}.",
            )

    @staticmethod
    def _check_decoder_block(block: BlockSpec) -> None:
        plain = block.arrangement == "sequential" and block.skips == SkipsSpec() and block.mlp.kind != "none"
        if not plain or block.gains != GainsSpec():
            raise refusal(
                ("block",),
                block.arrangement,
                "the blocks of a decoder that reads an encoder are sequential, with an MLP, one skip round each part "
                "and no gains",
                "Use a block such as `post_ln` or `pre_ln`.",
            )

    def check_context(self, context: int) -> None:
        """Refuse a longest input that a mixer of this model cannot work on.

        Raises:
            ValidationError: With the path below this spec.
        """
        for home, mixer, causal, cross in self._mixers():
            try:
                mixer.check(self.mixer_context(context, causal=causal, cross=cross))
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

    def mixer_context(
        self, context: int, pack: int = 1, *, causal: bool | None = None, cross: bool = False
    ) -> MixerContext:
        """What the mixers of this model are told.

        Args:
            context: The longest input in tokens.
            pack: K.
            causal: Whether the future is hidden; None: as the family has it.
            cross: Whether keys and values come from another sequence.
        """
        causal = self.causal if causal is None else causal
        # A CLS token stands before the text.
        extra = 1 if self.head is not None and self.head.pooling == "cls" else 0
        return MixerContext(
            pack=pack,
            width=self.width,
            heads=self.heads,
            depth=self.decoder.depth if self.decoder is not None and (causal or cross) else self.depth,
            context=context + extra,
            causal=causal and not cross,
            init_std=self.init_std,
            positions=self.positions if self.positions in ("rotary", "alibi") and not cross else "none",
            cross=cross,
        )

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
        """Whether trials of this model can be members of one pack: every mixer keeps the pack axis apart."""
        return all(mixer.pack_aware for _, mixer, _, _ in self._mixers())

    @property
    def _a_family(self) -> str:
        return f"{'an' if self.family.startswith('e') else 'a'} {self.family}"

    def _mixers(self) -> Iterator[tuple[tuple[str, ...], MixerSpec, bool, bool]]:
        """Every mixer: where it is written, itself, whether it hides the future, whether it reads another sequence."""
        for home, block in self._layers:
            yield (*home, "mixer"), block.mixer, self.causal, False
        if self.decoder is not None:
            yield ("block", "mixer"), self.block.mixer, True, False
            yield ("decoder", "mixer"), self.decoder.mixer, False, True

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

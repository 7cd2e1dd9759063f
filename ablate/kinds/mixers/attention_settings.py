"""The settings of the kind `attention`, and which of them can be together; `attention.py` has equations and sources."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from ablate.kinds.mixers.attention_parts import (
    ForgetSpec,
    LogitsSpec,
    ShapingSpec,
    Shifted,
    ValueEmbeddingSpec,
    ValueResidualSpec,
)
from ablate.kinds.mixers.blocks import BlocksSpec
from ablate.kinds.mixers.gate import GateSpec
from ablate.kinds.mixers.query_key_norm import QueryKeyNormSpec
from ablate.nn.pack import DenseSpec, IdentitySpec, Projection
from ablate.spec.annotations import ShortFor
from ablate.spec.base import below, refusal
from ablate.spec.layer import InitialiserSpec, LayerContext, SharedTensor
from ablate.spec.sublayers import MixerSpec, check_groups


class AttentionSettings(MixerSpec):
    """The fields of `AttentionSpec`, and the rules that they keep."""

    uses_heads = True
    relative_positions = frozenset({"query_key", "logits"})
    any_head_width = True
    scales_logits = True
    takes_window = True
    cross_form = True
    takes_separate_inputs = True
    must_be_read = True

    softmax: bool = True
    """Whether the rows of Q·Kᵀ go through softmax."""
    matmul_order: Literal["qk_first", "kv_first"] = "qk_first"
    """(Q·Kᵀ)·V or Q·(Kᵀ·V); the second needs no softmax between the products."""
    scale: Literal["head_width", "length", "length_and_head_width", "none"] | float = "head_width"
    """`head_width`: 1/√d_h; `length`: 1/√L, causal 1/√t, padding not counted; `length_and_head_width`: 1/√(L·d_h)
    (SimpleTRON's code for AG News); `none`: 1; or a number (Gemma's 1/√`query_pre_attn_scalar`)."""
    query_key_bias: bool = False
    """Whether the query and key projections have biases."""
    query_key_norm: Annotated[QueryKeyNormSpec, ShortFor("kind")] = QueryKeyNormSpec()
    """Norm of queries and keys: `rms`, `layer` or `l2`, or a mapping with more settings (arXiv:2302.05442)."""
    kv_heads: int | None = Field(default=None, ge=1)
    """Heads of keys and values, each shared by a group of query heads (grouped queries, arXiv:2305.13245; 1:
    multi-query, arXiv:1911.02150); unless set, one for each query head."""
    value: Projection = DenseSpec()
    """W_V, the map to the values."""
    output: Projection = DenseSpec()
    """W_P, the output projection, applied to the concatenated heads."""
    shaping: Annotated[ShapingSpec, ShortFor("kind")] = ShapingSpec()
    """Terms added to and subtracted from the attention matrix."""
    logits: LogitsSpec = LogitsSpec()
    """Changes of the logits before and in softmax: soft cap, sinks, precision."""
    gate: Annotated[GateSpec, ShortFor("kind")] = GateSpec()
    """The gate: `headwise` or `elementwise` factors of the heads' output before W_P, or a mapping with settings."""
    blocks: BlocksSpec | None = None
    """Blocks of keys of which each query reads a few (arXiv:2502.13189); unless set, all are read."""
    forget: Annotated[ForgetSpec, ShortFor("kind")] = ForgetSpec()
    """How fast each head forgets (arXiv:2503.02130): `of_input`, `trained` or `fixed`, or a mapping with settings."""
    shift: tuple[Shifted, ...] = ()
    """`key`, `value` or both: what is mixed with that of the token before, by a share for each token and head."""
    output_norm: Annotated[QueryKeyNormSpec, ShortFor("kind")] = QueryKeyNormSpec()
    """Norm of the heads' output, before the gate (arXiv:2503.02130 has `rms` with `gain: heads`)."""
    exclusive: bool = False
    """Whether the component of each head's output along the token's own value is removed (arXiv:2603.09078)."""
    value_residual: ValueResidualSpec | None = None
    """Values of an earlier layer that are added (arXiv:2410.17897); `{}` for the defaults."""
    value_embedding: ValueEmbeddingSpec | None = None
    """A table of vectors by token id that is added to the values; `{}` for the defaults."""
    shared_kv: int | None = Field(default=None, ge=0)
    """The layer whose keys and values, after norm and positions, this layer uses instead of its own. Set it in that
    layer too, which publishes them."""
    query_init: Literal["normal", "zero"] | None = None
    """Initial value of W_Q; unless set, `zero` for shaping `shaped` (eq. 5) and `normal` otherwise."""
    without_heads: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Heads to remove, numbered from 0, with their columns of W_Q, W_K and W_V and their rows of W_P. The other heads
    keep their width and, with `training.init_from`, their weights."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the attention matrix, after shaping; with `kv_first` on Kᵀ·V (SimpleTRON)."""

    @field_validator("scale", mode="before")
    @classmethod
    def _is_a_scale(cls, scale: object) -> object:
        names = get_args(get_args(cls.model_fields["scale"].annotation)[0])
        is_number = isinstance(scale, (int, float)) and not isinstance(scale, bool)
        if (is_number and scale <= 0) or (isinstance(scale, str) and scale not in names):  # type: ignore[operator]
            raise refusal(
                (),
                scale,
                "the scale of the logits is a number above 0, or a name",
                f"Write {', '.join(names)}, or a number such as 0.1.",
            )
        return scale

    @field_validator("shift")
    @classmethod
    def _each_once(cls, shifted: tuple[Shifted, ...]) -> tuple[Shifted, ...]:
        return tuple(sorted(set(shifted)))

    @field_validator("without_heads")
    @classmethod
    def _in_order(cls, heads: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(heads)))

    @field_validator("query_init")
    @classmethod
    def _default_start_is_none(cls, start: str | None, info: ValidationInfo) -> str | None:
        # A value that is written at its default has the hash of one that is left out.
        shaping = info.data.get("shaping")
        return None if isinstance(shaping, ShapingSpec) and start == shaping.query_start else start

    @model_validator(mode="after")
    def _is_attention(self) -> Self:
        if self.softmax and self.matmul_order == "kv_first":
            raise refusal(
                ("matmul_order",),
                self.matmul_order,
                "softmax is applied between Q·Kᵀ and V, so the products cannot be taken in the order Q·(Kᵀ·V)",
                "Set `softmax: false`, or `matmul_order: qk_first`.",
            )
        if not self.softmax and self.shaping.kind == "shaped":
            raise refusal(
                ("shaping",),
                self.shaping.kind,
                "the centring matrix of shaped attention is the softmax of equal logits, and softmax is off",
                "Set `softmax: true`, or `shaping: value_skipinit`.",
            )
        if not self.softmax and self.logits != LogitsSpec():
            raise refusal(
                ("logits",),
                self.logits.canonical(),
                "a soft cap, sinks and a precision apply to the logits of softmax, which is off",
                "Set `softmax: true`, or leave `logits` out.",
            )
        if self.blocks is not None and (not self.softmax or self.shaping.kind == "shaped"):
            raise refusal(
                ("blocks",),
                self.blocks.canonical(),
                "which blocks are read is a mask of softmax, and the centring matrix of shaped attention has none",
                "Set `softmax: true` and another `shaping`, or leave `blocks` out.",
            )
        if self.forget.present and (not self.softmax or self.shaping.kind == "shaped"):
            raise refusal(
                ("forget",),
                self.forget.kind,
                "what is forgotten is a bias of the logits of softmax, without which shaped attention is the identity",
                "Set `softmax: true` and another `shaping`, or leave `forget` out.",
            )
        if self.output_norm.present and self.exclusive:
            raise refusal(
                ("output_norm",),
                self.output_norm.kind,
                "without its own value the first token gives 0, of which a norm makes noise",
                "Leave `output_norm` out, or set `exclusive: false`.",
            )
        if self.output_norm.temperature is not None:
            raise refusal(
                ("output_norm", "temperature"),
                self.output_norm.temperature,
                "a temperature is a factor of logits, and the output of the heads has none",
                "Leave it out.",
            )
        if self.shared_kv is not None and (self.value_residual or self.value_embedding):
            name = "value_residual" if self.value_residual else "value_embedding"
            raise refusal(
                (name,),
                getattr(self, name).canonical(),
                "layers that share values cannot add terms to them",
                f"Leave out `{name}` or `shared_kv`.",
            )
        return self

    def canonical(self) -> Any:
        """As any spec, its kind first, with a `query_key_norm` at its defaults written as its kind alone."""
        plain = {"kind": self.kind_name(), **super().canonical()}
        if plain.get("query_key_norm", {}).keys() == {"kind"}:
            plain["query_key_norm"] = plain["query_key_norm"]["kind"]
        return plain

    @property
    def fuses_dropout(self) -> bool:
        """Whether the fused kernel of a GPU applies dropout, so that no matrix is kept: to weights without shaping."""
        return self.softmax and self.shaping.kind == "none"

    def on_gpu(self) -> Self:
        spares = self.dropout > 0 and self.fuses_dropout and self.logits.plain
        return self.model_copy(update={"dropout": 0.0}) if spares else self

    @property
    def shares(self) -> bool:
        return self.value_residual is not None or self.value_embedding is not None or self.shared_kv is not None

    def starts_at_zero(self, initialiser: InitialiserSpec) -> bool:
        """Whether its output projection does."""
        mapped = isinstance(self.output, DenseSpec) and self.output.init == "normal"
        return mapped and initialiser.zero_outputs

    def convolved_width(self, context: LayerContext) -> int:
        context = self.remaining(context)
        return (
            0 if self.reads_kv(context) else context.head_width * (context.heads + 2 * (self.kv_heads or context.heads))
        )

    def convolved_keys(self, context: LayerContext) -> int:
        context = self.remaining(context)
        return 0 if self.reads_kv(context) else context.head_width * (self.kv_heads or context.heads)

    def reads_kv(self, context: LayerContext) -> bool:
        """Whether this layer attends to keys and values of another one."""
        return self.shared_kv is not None and context.layer != self.shared_kv

    def reads(self, context: LayerContext) -> tuple[SharedTensor, ...]:
        """Keys and values, or values of an earlier layer, or token ids."""
        d_kv = context.head_width * (self.kv_heads or context.heads)
        read: list[SharedTensor] = []
        if self.reads_kv(context):
            assert self.shared_kv is not None
            read += [SharedTensor(name, self.shared_kv, (d_kv,)) for name in _shared_names(context)]
        if self.value_residual is not None and context.layer != self.value_residual.from_layer:
            read.append(SharedTensor("values", self.value_residual.from_layer, (d_kv,)))
        if self.value_embedding is not None:
            read.append(context.tokens)
        return tuple(read)

    def publishes(self, context: LayerContext) -> tuple[SharedTensor, ...]:
        d_kv = context.head_width * (self.kv_heads or context.heads)
        if self.shared_kv == context.layer:
            return tuple(context.shared(name, d_kv) for name in _shared_names(context))
        if self.value_residual is not None and context.layer == self.value_residual.from_layer:
            return (context.shared("values", d_kv),)
        return ()

    def check(self, context: LayerContext) -> None:
        self._check_left_out(context)
        context = self.remaining(context)
        self._check_paths(context)
        self._check_tokens_before(context)
        groups = self.kv_heads or context.heads
        check_groups("kv_heads", groups, context.heads, "the key and value heads must divide the {} query heads")
        if groups != context.heads and isinstance(self.value, IdentitySpec):
            raise refusal(
                ("value",),
                "identity",
                f"values without a map have the width {context.width}, and {groups} value heads are narrower",
                "Leave `kv_heads` out, or set `value: dense`.",
            )
        if context.cross and self.shaping.kind != "none":
            raise refusal(
                ("shaping",),
                self.shaping.kind,
                "shaping adds the identity matrix to attention, and cross-attention has no diagonal",
                "Leave `shaping` out.",
            )
        for name, projection in (("value", self.value), ("output", self.output)):
            if context.inner_width != context.width and isinstance(projection, IdentitySpec):
                raise refusal(
                    (name,),
                    "identity",
                    f"without a map the heads together must have the width {context.width}, and they have "
                    f"{context.inner_width}",
                    f"Leave `head_width` out, or set `{name}: dense`.",
                )
        if context.positions is not None and context.positions.applied == "logits" and not self.softmax:
            raise refusal(
                ("softmax",),
                False,
                f"{context.positions.kind_name()} positions are a bias of the logits of softmax, which is off",
                "Set `softmax: true`, or other `model.positions`.",
            )
        if context.window is not None and self.matmul_order == "kv_first":
            raise refusal(
                ("matmul_order",),
                self.matmul_order,
                "a window masks the attention matrix, which Q·(Kᵀ·V) never computes",
                "Set `matmul_order: qk_first`, or leave `window` out.",
            )
        if context.window is not None and self.scale in ("length", "length_and_head_width"):
            raise refusal(
                ("scale",),
                self.scale,
                f"the scale `{self.scale}` counts all tokens, and a window hides some of them",
                "Set another `scale`, or leave `window` out.",
            )
        if context.window is not None and self.shaping.kind == "shaped":
            raise refusal(
                ("shaping",),
                self.shaping.kind,
                "the centring matrix of shaped attention is defined over all tokens, not over a window",
                "Choose another `shaping`, or leave `window` out.",
            )

    def remaining(self, context: LayerContext) -> LayerContext:
        """The context without the removed heads."""
        if not self.without_heads:
            return context
        return replace(context, heads=context.heads - len(self.without_heads), head_width=context.head_width)

    def _check_left_out(self, context: LayerContext) -> None:
        """Refuse to remove heads that do not exist, or that share tensors with other heads or layers."""
        if not self.without_heads:
            return
        heads = list(self.without_heads)
        if heads[-1] >= context.heads or len(heads) == context.heads:
            raise refusal(
                ("without_heads",),
                heads,
                f"the layer has {context.heads} heads, numbered from 0, and at least one must remain",
                "Name other heads; `gains.mixer_branch: 0` switches off the whole mixer.",
            )
        by_logits = context.positions is not None and context.positions.applied == "logits"
        if self.kv_heads is not None or self.shares or by_logits:
            raise refusal(
                ("without_heads",),
                heads,
                "heads cannot be removed if they share keys, values or tensors, or if positions depend on their number",
                "Leave `without_heads` out.",
            )

    def _check_paths(self, context: LayerContext) -> None:
        """Refuse settings that the depth, the width, causality or cross-attention make impossible."""
        norm = self.query_key_norm
        if (norm.kind, norm.over) == ("layer", "head") and context.head_width == 1:
            raise refusal(
                ("query_key_norm",),
                norm.kind,
                "LayerNorm of a head of width 1 is 0, so all logits would be equal",
                "Set `query_key_norm: rms`, or fewer heads.",
            )
        if self.output_norm.present and context.head_width == 1:
            raise refusal(
                ("output_norm",),
                self.output_norm.kind,
                "the norm of a head of width 1 leaves its sign alone",
                "Leave `output_norm` out, or set fewer heads.",
            )
        try:
            self.gate.check(context)
        except ValidationError as error:
            raise below(("gate",), error) from None
        if self.gate.place in ("key", "value") and self.reads_kv(context):
            raise refusal(
                ("gate", "place"),
                self.gate.place,
                f"this layer attends to the keys and values of layer {self.shared_kv}, which has gated them itself",
                "Set another place, or leave `shared_kv` out.",
            )
        if context.separate_inputs and self.reads_kv(context):
            raise refusal(
                ("shared_kv",),
                self.shared_kv,
                "the residual gives keys and values inputs of their own, and this layer attends to those of another",
                "Leave `shared_kv` out, or set another `residual`.",
            )
        if self.shares and context.cross:
            raise refusal(
                (),
                self.kind_name(),
                "cross-attention shares no tensors with other layers",
                "Leave out `value_residual`, `value_embedding` and `shared_kv`.",
            )
        if self.exclusive and context.cross:
            raise refusal(
                ("exclusive",),
                True,
                "in cross-attention a token has no value of its own",
                "Leave `exclusive` out.",
            )
        if self.exclusive and context.head_width == 1:
            raise refusal(
                ("exclusive",),
                True,
                "a head of width 1 has no direction besides its own value, so its output would always be 0",
                "Leave `exclusive` out, or set fewer heads.",
            )
        if self.matmul_order == "kv_first" and self.dropout > 0 and context.causal:
            raise refusal(
                ("dropout",),
                self.dropout,
                "with `kv_first` dropout is applied to Kᵀ·V, and a causal mixer has a different Kᵀ·V at each token",
                "Set `dropout: 0`, or `matmul_order: qk_first`.",
            )
        if self.value_embedding is not None and not context.causal:
            raise refusal(
                ("value_embedding",),
                self.value_embedding.canonical(),
                "the table is read by token ids, which only a decoder passes to its layers",
                "Leave `value_embedding` out, or set `model.family: decoder`.",
            )
        values_from = None if self.value_residual is None else self.value_residual.from_layer
        for name, source in (("value_residual", values_from), ("shared_kv", self.shared_kv)):
            if source is not None and source >= context.depth - 1:
                raise refusal(
                    (name,),
                    source,
                    f"layers after layer {source} read from it, and the model has {context.depth} layers",
                    f"Leave `{name}` out, or name an earlier layer.",
                )

    def _check_tokens_before(self, context: LayerContext) -> None:
        """Refuse what is about tokens before where a layer sees both sides, or has no keys of its own."""
        if self.shift and self.reads_kv(context):
            raise refusal(
                ("shift",),
                list(self.shift),
                f"this layer attends to the keys and values of layer {self.shared_kv}, which has shifted them itself",
                "Leave `shift` or `shared_kv` out.",
            )
        if self.blocks is not None and context.window is not None:
            raise refusal(
                ("blocks",),
                self.blocks.canonical(),
                f"its blocks are chosen among all earlier ones, and the window shows {context.window} tokens",
                "Leave `blocks` or `window` out.",
            )
        before = {"blocks": self.blocks is not None, "forget": self.forget.present, "shift": bool(self.shift)}
        name = next((name for name, there in before.items() if there), "")
        if name and not context.causal:
            raise refusal(
                (name,),
                self.canonical()[name],
                "it is about tokens before, and this layer sees both sides",
                f"Leave `{name}` out, or set `model.family: decoder`.",
            )

    def separates_documents(self) -> bool:
        """Whether Q·Kᵀ is computed, whose mask separates them; a block of keys may belong to two."""
        return self.matmul_order == "qk_first" and self.blocks is None


def _shared_names(context: LayerContext) -> tuple[str, str]:
    """Names of the keys and values that layers share; keys with different positions have different names."""
    positions = context.positions
    turned = positions is not None and positions.applied == "query_key"
    return f"keys with {positions.canonical_json()}" if positions is not None and turned else "keys", "shared values"

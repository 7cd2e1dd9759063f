"""Dot-product attention with every part of it a switch.

A = softmax(Q·Kᵀ·scale + M), or A = Q·Kᵀ·scale ∘ M without softmax; then shaping, A·V and the output projection.

- Attention Is All You Need (arXiv:1706.03762), eq. 1; https://arxiv.org/abs/1706.03762
- Simplifying Transformer Blocks (arXiv:2311.01906), eqs 2 and 4 to 6; https://arxiv.org/abs/2311.01906
- SimpleTRON (arXiv:2111.15588): Y = (1/√L)·Q·(Kᵀ·V); https://arxiv.org/abs/2111.15588

Shapes: K pack, B batch, T tokens, D width, H heads, d_h = D/H head width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ablate.kinds.mixers.attention_module import Attention
from ablate.kinds.mixers.shaping import ShapingSpec
from ablate.nn.kernels import linear_attention
from ablate.nn.pack import DenseSpec, IdentitySpec, Projection
from ablate.spec.annotations import ShortFor
from ablate.spec.base import largest_divisor, refusal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.mixer import MixerSpec


class AttentionSpec(MixerSpec):
    """Dot-product attention: softmax, order of products, scale, projections and shaping are settings."""

    source = "arXiv:1706.03762 eq. 1; arXiv:2311.01906 eqs 2, 4-6; arXiv:2111.15588"
    complexity = "L²d (Ld²/H without softmax and with `kv_first`)"
    uses_heads = True
    relative_positions = frozenset({"query_key", "logits"})
    any_head_width = True
    takes_window = True
    cross_form = True

    kind: Literal["attention"] = "attention"
    softmax: bool = True
    """Whether the rows of Q·Kᵀ go through softmax."""
    matmul_order: Literal["qk_first", "kv_first"] = "qk_first"
    """(Q·Kᵀ)·V or Q·(Kᵀ·V); the second needs no softmax between the products."""
    scale: Literal["head_width", "length", "none"] = "head_width"
    """`head_width`: 1/√d_h; `length`: 1/√L, causal 1/√t, padding not counted; `none`: 1."""
    query_key_bias: bool = False
    """Whether the query and key maps have biases."""
    query_key_norm: Literal["none", "rms", "layer"] = "none"
    """Norm of queries and keys over each head's width, with one trainable gain for all heads (arXiv:2302.05442)."""
    kv_heads: int | None = Field(default=None, ge=1)
    """Heads of keys and values, each shared by a group of query heads (grouped queries, arXiv:2305.13245; 1:
    multi-query, arXiv:1911.02150); unless set, one for each query head."""
    value: Projection = DenseSpec()
    """W_V."""
    output: Projection = DenseSpec()
    """W_P, after the heads are joined."""
    shaping: Annotated[ShapingSpec, ShortFor("kind")] = ShapingSpec()
    """What is added to and taken from the attention matrix."""
    query_init: Literal["normal", "zero"] | None = None
    """How W_Q starts; unless set, `zero` for shaping `shaped` (eq. 5) and `normal` elsewhere."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the attention matrix, after shaping."""

    @field_validator("query_init")
    @classmethod
    def _default_start_is_none(cls, start: str | None, info: ValidationInfo) -> str | None:
        # Written out at its default, it is the same as left out.
        shaping = info.data.get("shaping")
        return None if isinstance(shaping, ShapingSpec) and start == shaping.query_start else start

    @model_validator(mode="after")
    def _is_attention(self) -> Self:
        if self.softmax and self.matmul_order == "kv_first":
            raise refusal(
                ("matmul_order",),
                self.matmul_order,
                "softmax stands between Q·Kᵀ and V, so the products cannot be taken in the order Q·(Kᵀ·V)",
                "Set `softmax: false`, or `matmul_order: qk_first`.",
            )
        if not self.softmax and self.shaping.kind == "shaped":
            raise refusal(
                ("shaping",),
                self.shaping.kind,
                "the centring matrix of shaped attention is what softmax gives for equal logits; there is no softmax",
                "Set `softmax: true`, or `shaping: value_skipinit`.",
            )
        if self.matmul_order == "kv_first" and self.dropout > 0:
            raise refusal(
                ("dropout",),
                self.dropout,
                "dropout falls on the attention matrix, which Q·(Kᵀ·V) never makes",
                "Set `dropout: 0`, or `matmul_order: qk_first`.",
            )
        return self

    def check(self, context: LayerContext) -> None:
        """See `MixerSpec.check`."""
        groups = self.kv_heads or context.heads
        if context.heads % groups:
            near = largest_divisor(context.heads, groups)
            raise refusal(
                ("kv_heads",),
                groups,
                f"the heads of keys and values must divide the {context.heads} query heads",
                f"Set `kv_heads: {near}`.",
            )
        if groups != context.heads and isinstance(self.value, IdentitySpec):
            raise refusal(
                ("value",),
                "identity",
                f"values without a map keep the width {context.width}, and {groups} heads of values are narrower",
                "Leave `kv_heads` out, or set `value: dense`.",
            )
        if context.cross and self.shaping.kind != "none":
            raise refusal(
                ("shaping",),
                self.shaping.kind,
                "shaping adds the identity, and attention from one sequence to another has none",
                "Leave `shaping` out.",
            )
        for name, projection in (("value", self.value), ("output", self.output)):
            if context.inner_width != context.width and isinstance(projection, IdentitySpec):
                raise refusal(
                    (name,),
                    "identity",
                    f"without a map the heads together keep the width {context.width}, and theirs is "
                    f"{context.inner_width}",
                    f"Leave `head_width` out, or set `{name}: dense`.",
                )
        if context.positions is not None and context.positions.applied == "logits" and not self.softmax:
            raise refusal(
                ("softmax",),
                False,
                f"{context.positions.kind_name()} positions are a bias of logits, and without softmax there are none",
                "Set `softmax: true`, or other `model.positions`.",
            )
        if context.window is not None and self.matmul_order == "kv_first":
            raise refusal(
                ("matmul_order",),
                self.matmul_order,
                "a window hides entries of the attention matrix, which Q·(Kᵀ·V) never makes",
                "Set `matmul_order: qk_first`, or leave `window` out.",
            )
        if context.window is not None and self.scale == "length":
            raise refusal(
                ("scale",),
                self.scale,
                "the scale `length` counts all tokens, and a window shows some of them",
                "Set another `scale`, or leave `window` out.",
            )
        if context.window is not None and self.shaping.kind == "shaped":
            raise refusal(
                ("shaping",),
                self.shaping.kind,
                "the centring matrix of shaped attention is made for all tokens, not for those of a window",
                "Choose another `shaping`, or leave `window` out.",
            )

    def build(self, context: LayerContext) -> Attention:
        """See `MixerSpec.build`."""
        return Attention(self, context)

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """See `MixerSpec.parts`."""
        bias = " + b" if self.query_key_bias else ""
        maps = [("query", f"W_Q{bias}"), ("key", f"W_K{bias}")]
        value, output = self.value.label("W_V"), self.output.label("W_P")
        scale = {"head_width": "/√d_h", "length": "/√L", "none": ""}[self.scale]
        products = f"softmax(QKᵀ{scale})" if self.softmax else f"QKᵀ{scale}"
        shaping = {"none": "", "value_skipinit": "αI + βA", "shaped": "αI + βA - γC"}[self.shaping.kind]
        norm = {"none": "", "rms": "RMSNorm of Q, K", "layer": "LayerNorm of Q, K"}[self.query_key_norm]
        rows = [
            (*maps, *([("value", value)] if value else [])),
            (("norm", norm),) if norm else (),
            (("products", f"Q(KᵀV){scale}" if self.matmul_order == "kv_first" else f"A = {products}"),),
            (("shaping", shaping),) if shaping else (),
            (("output", output),) if output else (),
        ]
        return tuple(row for row in rows if row)

    def cache(self, context: LayerContext, length: int) -> int:
        """See `MixerSpec.cache`: keys and values, or the state Σ kᵀ·v of each head; and the sum of values for C."""
        d_h = context.head_width
        if self.matmul_order == "kv_first":
            return context.heads * d_h * d_h
        centre = context.inner_width if self.shaping.kind == "shaped" else 0
        return 2 * min(length, context.window or length) * d_h * (self.kv_heads or context.heads) + centre

    def cost(self, context: LayerContext, length: int) -> Cost:
        """See `MixerSpec.cost`; with softmax and dense maps this is Table 3 of arXiv:2308.07661."""
        wide, d, h, d_h = context.width, context.inner_width, context.heads, context.head_width
        kv_heads = self.kv_heads or h
        d_kv = d_h * kv_heads
        bias = self.query_key_bias
        maps = linear_cost(length, wide, d, bias=bias) + linear_cost(length, wide, d_kv, bias=bias)
        maps += self.value.cost(length, wide, d_kv) + self.output.cost(length, d, wide)
        maps = replace(maps, activations=self._kept(context, length)) + self._norm_cost(length, d, d_kv, d_h)
        pairs = _pairs(context, length)
        if self.matmul_order == "kv_first":
            # Causal: a state d_h x d_h for each head gets one product a token, and each token reads it.
            core = Cost(
                multiplications=2 * length * d * d_h,
                additions=length * d * d_h + length * d * (d_h - 1),
                divisions=0 if self.scale == "none" else length * d,
            )
        else:
            products = Cost(
                multiplications=2 * pairs * d,
                additions=pairs * (d - h) + (pairs - length) * d,
            )
            softmax = Cost(additions=(pairs - length) * h, divisions=pairs * h, exponentiations=pairs * h)
            scale = Cost(divisions=0 if self.scale == "none" else pairs * h)
            core = products + scale + (softmax if self.softmax else Cost())
        gains = sum(h for gain in self.shaping.gains().values() if gain.trainable)
        terms = len(self.shaping.gains())
        shaping = Cost(
            parameters=gains,
            multiplications=terms * length * d,
            additions=max(0, terms - 1) * length * d + (length * d if "gamma" in self.shaping.gains() else 0),
            divisions=length * d if "gamma" in self.shaping.gains() else 0,
        )
        total = maps + core + shaping
        if context.positions is not None:
            total += context.positions.cost(context, length, key_heads=kv_heads, pairs=pairs)
        return total

    def _kept(self, context: LayerContext, length: int) -> int:
        """Scalars that autograd keeps, each once: one input for all maps, heads, products, what shaping adds up."""
        elements, d_h = length * context.inner_width, context.head_width
        square = context.heads * length * length
        values = 0 if isinstance(self.value, IdentitySpec) else 1  # else they are a view of the input
        mapped = 0 if isinstance(self.output, IdentitySpec) else 1
        heads = length * context.width + (2 + values) * elements  # the input, queries, keys and values
        shaped = self.shaping.kind != "none"
        if self.dropout > 0:
            # A is made: kept are the noise, what it leaves of A, A itself by softmax and by gains, and a mask of bytes.
            return heads + (2 + (self.softmax or shaped)) * square + length * length // 4 + mapped * elements
        if self.softmax:
            biased = context.positions is not None and context.positions.applied == "logits"
            bias = square if biased else length * length // 4 if context.window else 0  # a mask of bytes
            result = elements + length * context.heads  # with the logarithm of each row's sum
            centre = elements if self.shaping.kind == "shaped" and context.causal else 0
            return heads + bias + result + centre + (mapped * elements if shaped else 0)
        results = (mapped + shaped) * elements
        if self.matmul_order == "qk_first":
            return heads + square + results
        if not context.causal:
            return heads + context.heads * d_h * d_h + results
        return length * context.width + context.heads * linear_attention.kept(length, d_h, d_h) + results

    def _norm_cost(self, length: int, d: int, d_kv: int, d_h: int) -> Cost:
        if self.query_key_norm == "none":
            return Cost()
        elements = length * (d + d_kv)
        return Cost(
            parameters=2 * d_h * (2 if self.query_key_norm == "layer" else 1),
            multiplications=2 * elements,
            additions=elements,
            divisions=elements,
            activations=2 * elements,  # what goes in, and what is multiplied by the gain
        )


def _pairs(context: LayerContext, length: int) -> int:
    """Entries of the attention matrix that are not hidden."""
    reach = length if context.window is None else min(context.window, length)
    before = reach * (reach + 1) // 2 + (length - reach) * reach  # the token itself and those before it
    return before if context.causal else 2 * before - length

"""Dot-product attention in which every part can be switched.

A = softmax(Q·Kᵀ·scale + M), or A = Q·Kᵀ·scale ∘ M without softmax; then shaping, A·V and the output projection.
Settings of one part are grouped: `query_key_norm`, `logits`, `gate`, `shaping`, `forget`, and what is added to values
(`value_residual`, `value_embedding`). With `exclusive` the component of each head's output along the token's own value
is removed: y_t - (y_t·v̂_t)·v̂_t with v̂ = v/‖v‖. With `shared_kv` later layers use the keys and values of one layer.

- Attention Is All You Need (arXiv:1706.03762), eq. 1; https://arxiv.org/abs/1706.03762
- Simplifying Transformer Blocks (arXiv:2311.01906), eqs 2 and 4 to 6; https://arxiv.org/abs/2311.01906
- SimpleTRON (arXiv:2111.15588): Y = (1/√L)·Q·(Kᵀ·V); https://arxiv.org/abs/2111.15588
- Forgetting Transformer (arXiv:2503.02130): `forget`, `shift` and `output_norm`; equations in `forget.py`
- MoBA (arXiv:2502.13189): `blocks`; equations in `blocks.py`
- Exclusive self-attention (arXiv:2603.09078); https://arxiv.org/abs/2603.09078
- Gemma 3n (`transformers`, `models/gemma3n`): keys and values shared between layers

Shapes: K pack, B batch, T tokens, D width, H heads, d_h = D/H head width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from ablate.kinds.mixers.attention_module import Attention
from ablate.kinds.mixers.attention_parts import shift_cost
from ablate.kinds.mixers.attention_settings import AttentionSettings
from ablate.nn.kernels import linear_attention
from ablate.nn.kernels.block_attention import gathering_elements
from ablate.nn.pack import IdentitySpec, visible_pairs
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext


def attention_cost(spec: AttentionSettings, context: LayerContext, length: int) -> Cost:
    """The cost over one sequence; with softmax and dense projections this is Table 3 of arXiv:2308.07661.

    Args:
        context: Context of its layer, without the removed heads.
        length: L, tokens.
    """
    reads_kv = spec.reads_kv(context)
    wide, d, h, d_h = context.width, context.inner_width, context.heads, context.head_width
    kv_heads = spec.kv_heads or h
    d_kv = d_h * kv_heads
    bias = spec.query_key_bias
    maps = linear_cost(length, wide, d, bias=bias) + spec.output.cost(length, d, wide)
    if not reads_kv:
        maps += linear_cost(length, wide, d_kv, bias=bias) + spec.value.cost(length, wide, d_kv)
    apart = 2 * length * wide if context.separate_inputs else 0
    maps = replace(maps, activations=_kept_activations(spec, context, length) + apart)
    maps += spec.query_key_norm.cost(length, h, 0 if reads_kv else kv_heads, d_h) + _paths(spec, context, length)
    pairs = visible_pairs(context, length) if spec.blocks is None else spec.blocks.pairs(length)
    if spec.matmul_order == "kv_first":
        # Causal: a state d_h x d_h for each head gets one product a token, and each token reads it.
        core = Cost(
            multiplications=2 * length * d * d_h,
            additions=length * d * d_h + length * d * (d_h - 1),
            divisions=0 if spec.scale == "none" else length * d,
        )
    else:
        products = Cost(
            multiplications=2 * pairs * d,
            additions=pairs * (d - h) + (pairs - length) * d,
        )
        softmax = Cost(additions=(pairs - length) * h, divisions=pairs * h, exponentiations=pairs * h)
        scale = Cost(divisions=0 if spec.scale == "none" else pairs * h)
        core = products + scale + (softmax if spec.softmax else Cost()) + spec.logits.cost(length, h, pairs)
    gains = sum(h for gain in spec.shaping.gains().values() if gain.trainable)
    terms = len(spec.shaping.gains())
    shaping = Cost(
        parameters=gains,
        multiplications=terms * length * d,
        additions=max(0, terms - 1) * length * d + (length * d if "gamma" in spec.shaping.gains() else 0),
        divisions=length * d if "gamma" in spec.shaping.gains() else 0,
    )
    total = maps + core + shaping
    if context.positions is not None:
        total += context.positions.cost(context, length, key_heads=0 if reads_kv else kv_heads, pairs=pairs)
    return total


def _paths(spec: AttentionSettings, context: LayerContext, length: int) -> Cost:
    """Cost of the gate, of what fades and is shifted, of the terms added to the values, and of `exclusive`."""
    d_kv, elements = context.head_width * (spec.kv_heads or context.heads), length * context.inner_width
    kv_heads = spec.kv_heads or context.heads
    total = spec.gate.cost(context, length, kv_heads) + spec.output_norm.cost(
        length, context.heads, 0, context.head_width
    )
    total += spec.forget.cost(context, length, visible_pairs(context, length))
    if spec.blocks is not None:
        total += spec.blocks.cost(length, context.heads, kv_heads, context.head_width)
    for _ in spec.shift:
        total += shift_cost(context, length, kv_heads)
    if spec.value_residual is not None and context.layer != spec.value_residual.from_layer:
        total += spec.value_residual.cost(context, length, d_kv)
    if spec.value_embedding is not None:
        total += spec.value_embedding.cost(context, length, d_kv)
    if spec.exclusive:
        rows = length * context.heads
        total += Cost(
            multiplications=3 * elements,
            additions=3 * elements - 2 * rows,
            divisions=elements,
            activations=2 * elements + 3 * rows,  # v̂, the output without its part along v̂, two sums and a norm
        )
    return total


def _kept_activations(spec: AttentionSettings, context: LayerContext, length: int) -> int:
    """Number of scalars that autograd keeps: the input of all projections, heads, products and terms of shaping."""
    elements, d_h = length * context.inner_width, context.head_width
    square = context.heads * length * length
    values = 0 if isinstance(spec.value, IdentitySpec) else 1  # otherwise they are a view of the input
    mapped = 0 if isinstance(spec.output, IdentitySpec) else 1
    heads = length * context.width + (2 + values) * elements  # the input, queries, keys and values
    if spec.reads_kv(context):
        heads = length * context.width + elements  # the layer that publishes keys and values keeps them
    shaped = spec.shaping.kind != "none"
    logits = spec.logits
    if spec.matmul_order == "qk_first" and (spec.dropout > 0 or not logits.plain):
        # A is materialised. Kept: A after softmax and after gains, the capped logits, a sink for each row, a mask of
        # bytes, and the mask and the result of dropout.
        squares = (spec.softmax or shaped) + (logits.soft_cap is not None) + 2 * (spec.dropout > 0)
        sinks = length * context.heads * logits.sinks
        return heads + squares * square + sinks + length * length // 4 + mapped * elements
    if spec.softmax:
        biased = spec.forget.present or (context.positions is not None and context.positions.applied == "logits")
        if not biased and (chosen := spec.blocks) is not None and chosen.gathers(length):
            heads = length * context.width + mapped * elements
            bias = context.heads * gathering_elements(length, chosen.size, chosen.active, 1, d_h)
        else:  # a mask, in numbers
            bias = square if biased or spec.blocks else length * length if context.window else 0
        result = elements + length * context.heads  # with the logarithm of each row's sum
        centre = elements if spec.shaping.kind == "shaped" and context.causal else 0
        # Shaping writes a new tensor. After norms by head, concatenating the heads makes a copy.
        copied = shaped or (spec.gate.present and spec.gate.place == "heads") or spec.exclusive
        by_head = spec.query_key_norm.lays_out_heads and not copied
        return heads + bias + result + centre + (mapped * elements if shaped or by_head else 0)
    results = (mapped + shaped) * elements
    if spec.matmul_order == "qk_first":
        return heads + square + results
    if not context.causal:
        return heads + context.heads * d_h * d_h + results
    return length * context.width + context.heads * linear_attention.kept_activations(length, d_h, d_h) + results


class AttentionSpec(AttentionSettings):
    """Dot-product attention: softmax, order of products, scale, projections and shaping are settings."""

    source = "arXiv:1706.03762 eq. 1; arXiv:2311.01906 eqs 2, 4-6; arXiv:2111.15588"
    complexity = "L²d (Ld²/H without softmax and with `kv_first`)"

    kind: Literal["attention"] = "attention"

    def build(self, context: LayerContext) -> Attention:
        return Attention(self, self.remaining(context))

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        bias = " + b" if self.query_key_bias else ""
        value, output = self.value.label("W_V"), self.output.label("W_P")
        maps = [("query", f"W_Q{bias}"), ("key", f"W_K{bias}"), *([("value", value)] if value else [])]
        if self.shared_kv is not None:
            maps = [*maps[:1], ("key", f"K, V of layer {self.shared_kv}")]
        named = {"head_width": "/√d_h", "length": "/√L", "length_and_head_width": "/√(L·d_h)", "none": ""}
        scale = named[self.scale] if isinstance(self.scale, str) else f"·{self.scale:g}"
        terms = (f"QKᵀ{scale}", self.forget.label(), "" if self.blocks is None else f"in {self.blocks.label()}")
        logits = " ".join(term for term in terms if term)
        products = f"softmax({self.logits.label(logits)})" if self.softmax else f"QKᵀ{scale}"
        shaping = {"none": "", "value_skipinit": "αI + βA", "shaped": "αI + βA - γC"}[self.shaping.kind]
        norm, output_norm = self.query_key_norm.label(), self.output_norm.label().replace(" of Q, K", " of heads")
        added = [
            ("value residual", f"V + V of layer {self.value_residual.from_layer}" if self.value_residual else ""),
            ("value embedding", "V + E[token]" if self.value_embedding else ""),
        ]
        gate = ((f"gate of {self.gate.place}" if self.gate.place != "heads" else "gate", self.gate.label()),)
        early = self.gate.place in ("query", "key", "value")
        rows = [
            tuple(maps),
            (("norm", norm),) if norm else (),
            tuple((f"{name} shift", f"{name[0].upper()} mixed with that before") for name in self.shift),
            tuple(row for row in added if row[1]),
            gate if early and self.gate.present else (),
            (("products", f"Q(KᵀV){scale}" if self.matmul_order == "kv_first" else f"A = {products}"),),
            (("shaping", shaping),) if shaping else (),
            (("exclusive", "without own value"),) if self.exclusive else (),
            (("output norm", output_norm),) if output_norm else (),
            gate if self.gate.present and self.gate.place == "heads" else (),
            (("heads", f"without heads {', '.join(map(str, self.without_heads))}"),) if self.without_heads else (),
            (("output", output),) if output else (),
            gate if self.gate.present and self.gate.place == "output" else (),
        ]
        return tuple(row for row in rows if row)

    def cache(self, context: LayerContext, length: int) -> int:
        """Keys and values, or the state Σ kᵀ·v of each head; and the sum of values for C."""
        context = self.remaining(context)
        d_h = context.head_width
        if self.matmul_order == "kv_first":
            return context.heads * d_h * d_h
        centre = context.inner_width if self.shaping.kind == "shaped" else 0
        d_kv, kept = d_h * (self.kv_heads or context.heads), min(length, context.window or length)
        return kept * (2 * d_kv + context.heads * self.forget.present) + len(self.shift) * d_kv + centre

    def cost(self, context: LayerContext, length: int) -> Cost:
        return attention_cost(self, self.remaining(context), length)

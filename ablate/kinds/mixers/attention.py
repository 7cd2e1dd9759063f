"""Dot-product attention in which every part can be switched.

A = softmax(Q·Kᵀ·scale + M), or A = Q·Kᵀ·scale ∘ M without softmax; then shaping, A·V and the output projection.
Settings of one part are grouped: `query_key_norm`, `logits`, `gate`, `shaping`, and what is added to the values
(`value_residual`, `value_embedding`). With `exclusive` the component of each head's output along the token's own value
is removed: y_t - (y_t·v̂_t)·v̂_t with v̂ = v/‖v‖. With `shared_kv` later layers use the keys and values of one layer.

- Attention Is All You Need (arXiv:1706.03762), eq. 1; https://arxiv.org/abs/1706.03762
- Simplifying Transformer Blocks (arXiv:2311.01906), eqs 2 and 4 to 6; https://arxiv.org/abs/2311.01906
- SimpleTRON (arXiv:2111.15588): Y = (1/√L)·Q·(Kᵀ·V); https://arxiv.org/abs/2111.15588
- Exclusive self-attention (arXiv:2603.09078); https://arxiv.org/abs/2603.09078
- Gemma 3n (`transformers`, `models/gemma3n`): keys and values shared between layers

Shapes: K pack, B batch, T tokens, D width, H heads, d_h = D/H head width.
"""

from __future__ import annotations

from typing import Literal

from ablate.kinds.mixers.attention_cost import attention_cost
from ablate.kinds.mixers.attention_module import Attention
from ablate.kinds.mixers.attention_settings import AttentionSettings
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext


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
        products = f"softmax({self.logits.label(f'QKᵀ{scale}')})" if self.softmax else f"QKᵀ{scale}"
        shaping = {"none": "", "value_skipinit": "αI + βA", "shaped": "αI + βA - γC"}[self.shaping.kind]
        norm = self.query_key_norm.label()
        added = [
            ("value residual", f"V + V of layer {self.value_residual.from_layer}" if self.value_residual else ""),
            ("value embedding", "V + E[token]" if self.value_embedding else ""),
        ]
        gate = {"none": "", "headwise": "× σ(W_g x) by head", "elementwise": "× σ(W_g x)"}[self.gate.kind]
        rows = [
            tuple(maps),
            (("norm", norm),) if norm else (),
            tuple(row for row in added if row[1]),
            (("products", f"Q(KᵀV){scale}" if self.matmul_order == "kv_first" else f"A = {products}"),),
            (("shaping", shaping),) if shaping else (),
            (("exclusive", "without own value"),) if self.exclusive else (),
            (("gate", gate),) if gate else (),
            (("heads", f"without heads {', '.join(map(str, self.without_heads))}"),) if self.without_heads else (),
            (("output", output),) if output else (),
        ]
        return tuple(row for row in rows if row)

    def cache(self, context: LayerContext, length: int) -> int:
        """Keys and values, or the state Σ kᵀ·v of each head; and the sum of values for C."""
        context = self.remaining(context)
        d_h = context.head_width
        if self.matmul_order == "kv_first":
            return context.heads * d_h * d_h
        centre = context.inner_width if self.shaping.kind == "shaped" else 0
        return 2 * min(length, context.window or length) * d_h * (self.kv_heads or context.heads) + centre

    def cost(self, context: LayerContext, length: int) -> Cost:
        return attention_cost(self, self.remaining(context), length)

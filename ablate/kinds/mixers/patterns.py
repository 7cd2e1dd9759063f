"""Softmax attention to some tokens by a fixed pattern.

`local`: inside non-overlapping blocks, or inside a sliding window.

`blocks`: token i sees j where ⌊i/w⌋ = ⌊j/w⌋. `sliding`: token i sees j where |i - j| < w. Causal: of those, j ≤ i.

- Long Range Arena (arXiv:2011.04006), appendix B.1, names the blocks; https://arxiv.org/abs/2011.04006
- The code of Long Range Arena reshapes to (block, number of blocks), so its "block" is a strided set of tokens; here it
  is a neighbourhood, as in the paper.

`sparse`: a token sees its own block, and the last tokens of every other block.

Token i sees j where ⌊i/l⌋ = ⌊j/l⌋ (A⁽¹⁾) or j mod l ≥ l - c (A⁽²⁾), the two merged in each head; causal: only j ≤ i.

- Generating Long Sequences with Sparse Transformers (arXiv:1904.10509), section 4.3 and eq. 7 (merged heads);
  https://arxiv.org/abs/1904.10509
- The paper has the causal form only. Without it the same two sets are seen on both sides.
- In the code of Long Range Arena j mod l = 0 is also visible, and the future is hidden in classification too, except
  for [CLS].

`longformer`: a sliding window for all tokens, and a few global tokens that see all and are seen by all.

Token i sees j where |i - j| ≤ w/2 or j is global, by Q_s, K_s, V_s; a global token sees every token, by separate
projections Q_g, K_g, V_g. The first `global_tokens` tokens are global ([CLS], in classification). Causal: of those,
j ≤ i.

- Longformer (arXiv:2004.05150), section 3.1; https://arxiv.org/abs/2004.05150
- The paper does not say which maps an ordinary token uses to see a global one; as in the authors' code it is Q_s, K_s,
  V_s.
- Q_g, K_g, V_g have their own initial values. The paper copies Q_s, K_s, V_s, from a trained model.
- The window is not dilated, and the projections have no biases.

Shapes: K pack, B batch, T tokens, D width, H heads, P pack and batch together, d_h head width, w `window`, g global
tokens, n blocks of l tokens with c summary tokens each.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from ablate.nn.kernels.block_attention import (
    Keys,
    attend,
    attention_cost,
    blocks,
    join_blocks,
    positions,
    real_tokens,
    window,
    window_blocks,
)
from ablate.nn.pack import AttentionProjections, linear, projections_cost, split_heads
from ablate.spec.base import refusal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec


class LocalSpec(MixerSpec):
    """Softmax attention to nearby tokens only."""

    source = "arXiv:2011.04006 app. B.1"
    complexity = "Lwd"
    uses_heads = True
    relative_positions = frozenset({"query_key"})
    any_head_width = True

    kind: Literal["local"] = "local"
    pattern: Literal["blocks", "sliding"] = "blocks"
    """`blocks`: the text is cut into blocks that do not see each other; `sliding`: each token sees its own window."""
    window: int = Field(default=50, ge=1)
    """w, in tokens: the length of a block, or the first distance (on each side) that a sliding window hides."""

    def build(self, context: LayerContext) -> Local:
        return Local(self, context)

    def cache(self, context: LayerContext, length: int) -> int:
        """Keys and values of one window."""
        return 2 * min(length, self.window) * context.inner_width

    def cost(self, context: LayerContext, length: int) -> Cost:
        size, before, after = min(self.window, length), 0, 0
        if self.pattern == "sliding":
            size, before, after = window_blocks(length, self.window - 1, context.causal)
        pairs = length * size * (before + 1 + after)
        attention = attention_cost(length, context.inner_width, context.heads, pairs, block=size)
        copied = Cost(activations=2 * length * context.inner_width * (before + after))
        return projections_cost(context, length) + attention + copied


class Local(AttentionProjections):
    """The module of `LocalSpec`."""

    def __init__(self, spec: LocalSpec, context: LayerContext) -> None:
        super().__init__(context)
        self.spec = spec

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        length = x.shape[-2]
        q, k, v = self.project_folded(x)
        real = real_tokens(x, padding)
        if self.spec.pattern == "sliding":
            q, keys, _ = window(q, k, v, real, self.spec.window - 1, self.causal)
        else:
            q, k, v, real = (blocks(part, min(self.spec.window, length)) for part in (q, k, v, real))
            at, of = positions(q, 0, 0)
            seen = real.mT | (at == of)  # a token always sees itself, so that no row is empty
            keys = Keys(k, v, seen & (of <= at) if self.causal else seen)
        return self.project_output(join_blocks(attend(q, [keys]), length))


class SparseSpec(MixerSpec):
    """The fixed pattern of the Sparse Transformer."""

    source = "arXiv:1904.10509 sec. 4.3"
    complexity = "L√L·d where the stride is near √L"
    uses_heads = True
    relative_positions = frozenset({"query_key"})
    any_head_width = True

    kind: Literal["sparse"] = "sparse"
    stride: int = Field(default=128, ge=1)
    """l, the length of a block in tokens."""
    summary: int = Field(default=8, ge=1)
    """c, number of tokens at the end of each block that all later blocks see."""

    @model_validator(mode="after")
    def _summary_fits(self) -> Self:
        if self.summary > self.stride:
            raise refusal(
                ("summary",),
                self.summary,
                f"a block of {self.stride} tokens cannot have {self.summary} summary tokens",
                "Set `summary` to at most `stride`.",
            )
        return self

    def build(self, context: LayerContext) -> Sparse:
        return Sparse(self, context)

    def cache(self, context: LayerContext, length: int) -> int:
        """Keys and values of the own block and of the summaries of the earlier ones."""
        full, own = divmod(length, self.stride)
        return 2 * (full * self.summary + own) * context.inner_width

    def cost(self, context: LayerContext, length: int) -> Cost:
        pairs = length * (self.stride + -(-length // self.stride) * self.summary)
        attention = attention_cost(length, context.inner_width, context.heads, pairs, block=self.stride)
        return projections_cost(context, length) + attention


class Sparse(AttentionProjections):
    """The module of `SparseSpec`."""

    def __init__(self, spec: SparseSpec, context: LayerContext) -> None:
        super().__init__(context)
        self.spec = spec

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        c = self.spec.summary
        split = self.project_folded(x)
        q, k, v, real = (blocks(part, self.spec.stride) for part in (*split, real_tokens(x, padding)))
        at, of = positions(q, 0, 0)
        own = real.mT | (at == of)  # a token always sees itself, so that no row is empty
        count = torch.arange(q.shape[2], device=x.device)
        of_block, at_block = count.repeat_interleave(c), count[:, None, None]
        other = of_block < at_block if self.causal else of_block != at_block  # [n, 1, n·c]
        last = real[..., -c:, :].flatten(2, 3).mT[:, :, None]  # [P, 1, 1, 1, n·c]
        sources = [
            Keys(k, v, own & (of <= at) if self.causal else own),
            Keys(k[..., -c:, :].flatten(2, 3), v[..., -c:, :].flatten(2, 3), last & other),
        ]
        return self.project_output(join_blocks(attend(q, sources), x.shape[-2]))


class LongformerSpec(MixerSpec):
    """A sliding window, and global tokens with separate projections."""

    source = "arXiv:2004.05150 sec. 3.1"
    complexity = "Lwd"
    uses_heads = True
    relative_positions = frozenset({"query_key"})
    any_head_width = True

    kind: Literal["longformer"] = "longformer"
    window: int = Field(default=512, ge=2, multiple_of=2)
    """w, in tokens: w/2 are seen on each side, causal only those before."""
    global_tokens: int = Field(default=1, ge=0)
    """Number of global tokens, at the start of the text."""

    def build(self, context: LayerContext) -> Longformer:
        return Longformer(self, context)

    def cache(self, context: LayerContext, length: int) -> int:
        """Keys and values of the window and of the global tokens."""
        return 2 * min(length, self.window // 2 + 1 + self.global_tokens) * context.inner_width

    def cost(self, context: LayerContext, length: int) -> Cost:
        d, wide, g = context.inner_width, context.width, min(self.global_tokens, length)
        size, before, after = window_blocks(length, self.window // 2, context.causal)
        cost = projections_cost(context, length) + Cost(activations=2 * length * d * (before + after))
        pairs = length * (size * (before + 1 + after) + g)
        cost += attention_cost(length, d, context.heads, pairs, block=size)
        if self.global_tokens:
            cost += linear_cost(g, wide, d) + linear_cost(length, wide, d) * 2  # also keeps their keys and values
            cost += attention_cost(g, d, context.heads, g * length, fused=True)
        return cost


class Longformer(AttentionProjections):
    """The module of `LongformerSpec`."""

    def __init__(self, spec: LongformerSpec, context: LayerContext) -> None:
        super().__init__(context)
        self.spec = spec
        if spec.global_tokens:
            self.global_query = linear(context, context.width, context.inner_width)
            self.global_key = linear(context, context.width, context.inner_width)
            self.global_value = linear(context, context.width, context.inner_width)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        length, g = x.shape[-2], self.spec.global_tokens
        q, k, v = self.project_folded(x)
        real = real_tokens(x, padding)
        qb, near, of = window(q, k, v, real, self.spec.window // 2, self.causal)
        if g:
            # Global keys are a separate source, so they are removed from the window (except in rows that are unused).
            at = torch.arange(qb.shape[2] * qb.shape[3], device=x.device).view(qb.shape[2], -1, 1)
            far = real[:, :, :g].mT[:, :, None].expand(-1, -1, *qb.shape[2:4], -1)
            if self.causal:
                far = far & (torch.arange(far.shape[-1], device=x.device) <= at)
            near = near._replace(visible=near.visible & ((of >= g) | (of == at)))
            sources = [near, Keys(k[:, :, :g], v[:, :, :g], far)]
            ordinary = join_blocks(attend(qb, sources), length)
            y = torch.cat([self._global_rows(x, real), ordinary[:, :, g:]], 2)
        else:
            y = join_blocks(attend(qb, [near]), length)
        return self.project_output(y)

    def _global_rows(self, x: Tensor, real: Tensor) -> Tensor:
        """The outputs of the global tokens, which see all tokens, [P, H, g, d_h]."""
        q = split_heads(self.global_query(x[:, :, : self.spec.global_tokens]), self.heads)
        k, v = (split_heads(project(x), self.heads) for project in (self.global_key, self.global_value))
        q, k, v = (part.flatten(0, 1) for part in (self.add_positions(q), self.add_positions(k), v))
        seen = real.mT | torch.eye(q.shape[-2], k.shape[-2], dtype=torch.bool, device=x.device)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen.tril() if self.causal else seen)

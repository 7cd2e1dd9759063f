"""Sparse Transformer, fixed pattern: a token sees its own block, and the last tokens of every other block.

Token i sees j where ⌊i/l⌋ = ⌊j/l⌋ (A⁽¹⁾) or j mod l ≥ l - c (A⁽²⁾), the two merged in each head; causal: only j ≤ i.

- Generating Long Sequences with Sparse Transformers (arXiv:1904.10509), section 4.3 and eq. 7 (merged heads);
  https://arxiv.org/abs/1904.10509
- The paper has the causal form only. Without it the same two sets are seen on both sides.
- In the code of Long Range Arena j mod l = 0 is also visible, and the future is hidden in classification too, except
  for [CLS].

Shapes: K pack, B batch, T tokens, D width, H heads, n blocks of l tokens with c summary tokens each.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from ablate.nn.kernels.block_attention import Keys, attend, attention_cost, blocks, join_blocks, positions, real_tokens
from ablate.nn.pack import AttentionProjections, projections_cost
from ablate.spec.base import refusal
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec


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

"""Sparse Sinkhorn attention: each block sees itself and a block assigned to it by a learned, nearly hard sorting.

ψ_i = Σ of x_t in block i; R_ij = (W·ψ_i)_j, for each head; S = Sinkhorn(R/τ), doubly stochastic; the blocks of K and V
are sorted by it, K'_i = Σ_j S_ij·K_j. A query of block i attends to K_i and K'_i under one softmax.

- Sparse Sinkhorn Attention (arXiv:2002.11296), sections 3.1 and 3.2; https://arxiv.org/abs/2002.11296
- Sinkhorn: rows, then columns of exp(R/τ) are divided by their sums, `iterations` times, in log space.
- The sorting network is the linear map. Gumbel noise, which the paper adds to R in training, is left out.
- The sum of a column includes later blocks, so there is no causal form here; the author of the best known code marks
  that of the paper as unverified.
- A block that is all padding is sorted onto itself, and padded tokens add nothing where blocks are mixed.
- The code of Long Range Arena sums over all blocks instead of sorting them, without Sinkhorn iterations, and its blocks
  are strided; this kind does not reproduce its row.

Shapes: K pack, B batch, T tokens, D width, H heads, P pack and batch together, n blocks of b tokens, N the most blocks.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from ablate.nn.kernels.block_attention import Keys, attend, attention_cost, blocks, join_blocks, positions, real_tokens
from ablate.nn.pack import AttentionProjections, linear, projections_cost, split_heads
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec

_NEVER = -1e9  # a finite logit whose weight rounds to 0 in single precision


class SinkhornSpec(MixerSpec):
    """Attention inside a block and to the block that sorting assigns to it."""

    source = "arXiv:2002.11296 sec. 3"
    complexity = "Lbd + (L/b)²"
    causal_form = False
    uses_heads = True
    relative_positions = frozenset({"query_key"})
    any_head_width = True

    kind: Literal["sinkhorn"] = "sinkhorn"
    block: int = Field(default=50, ge=1)
    """b, tokens in a block."""
    temperature: float = Field(default=0.75, gt=0)
    """τ: the lower it is, the closer S is to a permutation."""
    iterations: int = Field(default=7, ge=1)
    """Number of times that rows and columns are normalised."""

    def longest_input(self, context: LayerContext) -> int:
        """All blocks that sorting has logits for."""
        return -(-context.context // self.block) * self.block

    def build(self, context: LayerContext) -> Sinkhorn:
        return Sinkhorn(self, context)

    def cost(self, context: LayerContext, length: int) -> Cost:
        wide, d, h, b = context.width, context.inner_width, context.heads, self.block
        n, most = -(-length // b), self.longest_input(context) // b
        logits = linear_cost(n, wide, h * most) + Cost(additions=(length - n) * wide, divisions=n * n * h)
        cells = 2 * self.iterations * n * n * h
        sinkhorn = Cost(additions=2 * cells, exponentiations=cells, activations=2 * cells)
        sorting = Cost(multiplications=2 * n * n * b * d, additions=2 * n * (n - 1) * b * d, activations=4 * n * b * d)
        attention = attention_cost(length, d, h, length * 2 * b, block=b)
        return projections_cost(context, length) + logits + sinkhorn + sorting + attention


class Sinkhorn(AttentionProjections):
    """The module of `SinkhornSpec`."""

    def __init__(self, spec: SinkhornSpec, context: LayerContext) -> None:
        super().__init__(context)
        self.spec = spec
        self.sort = linear(context, context.width, context.heads * spec.longest_input(context) // spec.block)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        split = self.project_folded(x)
        q, k, v, real = (blocks(part, self.spec.block) for part in (*split, real_tokens(x, padding)))
        sorting = self.sorting(x, padding)  # [P, H, n, n]
        at, of = positions(q, 0, 0)
        filled = real.any(2, keepdim=True) & real.any(3, keepdim=True)  # some block has a real token at this position
        sources = [
            Keys(k, v, real.mT | (at == of)),  # a token always sees itself, so that no row is empty
            Keys(_mix_blocks(sorting, k * real), _mix_blocks(sorting, v * real), filled.mT),
        ]
        return self.project_output(join_blocks(attend(q, sources), x.shape[-2]))

    def sorting(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """S [P, H, n, n] of x [K, B, T, D]: row i says which blocks are assigned to block i."""
        rows = x if padding is None else x * padding[..., None]
        summaries = blocks(rows, self.spec.block).sum(-2)  # [K, B, n, D]
        logits = split_heads(self.sort(summaries), self.heads).flatten(0, 1)[..., : summaries.shape[2]]  # [P, H, n, n]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / self.spec.temperature
        filled = blocks(real_tokens(x, padding), self.spec.block).any(3)  # [P, 1, n, 1]
        own = torch.eye(logits.shape[-1], dtype=torch.bool, device=x.device)
        logits = logits.masked_fill(~(filled & filled.mT), _NEVER).masked_fill(own & ~filled, 0.0)
        return sinkhorn(logits, self.spec.iterations)


def sinkhorn(logits: Tensor, iterations: int) -> Tensor:
    """Sinkhorn's algorithm: exp(logits) with rows and columns divided by their sums in turn, [..., n, n]."""
    for _ in range(iterations):
        logits = logits - logits.logsumexp(-1, keepdim=True)
        logits = logits - logits.logsumexp(-2, keepdim=True)
    return logits.exp()


def _mix_blocks(sorting: Tensor, part: Tensor) -> Tensor:
    """Blocks [P, H, n, b, d] mixed by S [P, H, n, n]."""
    return (sorting @ part.flatten(-2)).view(*sorting.shape[:-1], *part.shape[-2:])

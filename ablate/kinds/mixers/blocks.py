"""Attention to chosen blocks of keys: each query reads its own block, and those whose mean key it likes best (MoBA).

Keys are divided into blocks of C tokens. The score of a block before a query's own is q·mean(k of the block), in single
precision at least; each query reads its own block up to itself, and the k - 1 others with the highest scores.

- MoBA (arXiv:2502.13189), eqs 5 to 8; https://arxiv.org/abs/2502.13189
- https://github.com/MoonshotAI/MoBA (`moba_naive.py`), which was run beside it in double precision: outputs differ by
  2e-14, gradients by 6e-15 of their size

Long texts compute the logits of chosen blocks alone (`ablate.nn.kernels.block_attention`), unless something is added to
the logits; others compute all and hide them. The cost counts what is read.

Shapes: K pack, B batch, H heads, T queries, S keys, d_h head width, n blocks.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from ablate.nn.kernels.block_attention import gathering_is_cheaper
from ablate.spec.base import Spec
from ablate.spec.cost import Cost


class BlocksSpec(Spec):
    """Blocks of keys, of which each query reads some."""

    size: int = Field(default=64, ge=1)
    """C, tokens of a block."""
    active: int = Field(default=4, ge=1)
    """k, blocks that a query reads, its own counted."""

    def gathers(self, length: int) -> bool:
        """Whether the logits of chosen blocks alone are computed, where nothing is added to them."""
        return gathering_is_cheaper(length, self.size, self.active)

    def pairs(self, length: int) -> int:
        """Number of logits that the queries of one head read over a sequence."""
        return sum(
            place % self.size + 1 + self.size * min(self.active - 1, place // self.size) for place in range(length)
        )

    def cost(self, length: int, heads: int, kv_heads: int, head_width: int) -> Cost:
        """Cost of means and scores."""
        compared = sum(place // self.size for place in range(length)) * heads
        return Cost(
            multiplications=compared * head_width,
            additions=compared * (head_width - 1) + length * kv_heads * head_width,
            divisions=-(-length // self.size) * kv_heads * head_width,
        )

    def label(self) -> str:
        """Label in drawings."""
        return f"{self.active} blocks of {self.size}"

    def readable(self, q: Tensor, k: Tensor, first: int = 0, real: Tensor | None = None) -> Tensor:
        """Which keys a query may read apart from those after it, [K, B, H, T, S]. Arguments as of `choose`."""
        return self.choose(q, k, first, real).repeat_interleave(self.size, -1)[..., : k.shape[-2]]

    @torch.no_grad()
    def choose(self, q: Tensor, k: Tensor, first: int = 0, real: Tensor | None = None) -> Tensor:
        """The blocks that each query reads, [K, B, H, T, n].

        Args:
            q: Queries, [K, B, H, T, d_h].
            k: Keys, [K, B, H, S, d_h].
            first: Position of the first query.
            real: [K, B, S], True where a token is real.
        """
        means, count = block_means(k, self.size, real)
        blocks = means.shape[-2]
        own = (first + torch.arange(q.shape[-2], device=q.device)).unsqueeze(-1) // self.size
        block = torch.arange(blocks, device=q.device)
        scores = q.to(means.dtype) @ means.mT
        scores = scores.masked_fill((block >= own) | (count == 0).mT, -math.inf).masked_fill(block == own, math.inf)
        best = scores.topk(min(self.active, blocks), -1).indices
        return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True) & (block <= own)


def block_means(x: Tensor, size: int, real: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Means of blocks of tokens, in single precision at least.

    Args:
        x: Keys or values, [K, B, H, S, d].
        size: C, tokens of a block; the last one may have fewer.
        real: [K, B, S], True where a token counts.

    Returns:
        Means [K, B, H, n, d], 0 for empty blocks, and the number of tokens of each, [K or 1, B or 1, 1, n, 1].
    """
    length = x.shape[-2]
    counted = torch.ones(1, 1, length, dtype=torch.bool, device=x.device) if real is None else real
    rest = -length % size
    exact = x.to(torch.promote_types(x.dtype, torch.float32)) * counted[:, :, None, :, None]
    blocks = F.pad(exact, (0, 0, 0, rest)).reshape(*x.shape[:-2], -1, size, x.shape[-1])
    count = F.pad(counted, (0, rest)).reshape(*counted.shape[:2], 1, -1, size).sum(-1, keepdim=True)
    return blocks.sum(-2) / count.clamp(min=1), count

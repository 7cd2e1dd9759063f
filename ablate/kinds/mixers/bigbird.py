"""BigBird: blocks of tokens see their neighbours, some random blocks, and the global first and last block.

Block i sees blocks i-1, i, i+1 (w = 3), r random others, and the first and last; those two see all and are seen by all
(internal transformer construction). One softmax runs over all visible tokens, and none is counted twice.

- Big Bird (arXiv:2007.14062), section 2 and appendix D; https://arxiv.org/abs/2007.14062
- The random blocks are drawn once for each head, from the member's seed. The released code draws them in each process
  (with a fixed NumPy seed), and `transformers` replaces them by the first block outside training.
- In a text with too few blocks, a block sees fewer random ones; in a text of up to three blocks it sees everything. The
  released code falls back to full attention there.
- The projections have no biases.

Shapes: K pack, B batch, T tokens, D width, H heads, P pack and batch together, n blocks of b tokens, d_h head width.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from ablate.nn.kernels.block_attention import (
    Keys,
    attend,
    attention_cost,
    blocks,
    join_blocks,
    neighbourhood,
    positions,
    real_tokens,
    take_rows,
)
from ablate.nn.pack import AttentionProjections, normal, projections_cost
from ablate.nn.pack.initial import Packed
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec


class BigBirdSpec(MixerSpec):
    """Neighbouring, random and global blocks."""

    source = "arXiv:2007.14062 sec. 2, app. D"
    complexity = "Lbd"
    causal_form = False
    uses_heads = True
    relative_positions = frozenset({"query_key"})
    any_head_width = True

    kind: Literal["bigbird"] = "bigbird"
    block: int = Field(default=64, ge=1)
    """b, tokens in a block."""
    random_blocks: int = Field(default=3, ge=0)
    """r, random blocks that each block sees."""

    def longest_input(self, context: LayerContext) -> int:
        """All blocks that have lots."""
        return -(-context.context // self.block) * self.block

    def build(self, context: LayerContext) -> BigBird:
        return BigBird(self, context)

    def cost(self, context: LayerContext, length: int) -> Cost:
        b, d = self.block, context.inner_width
        ends = min(2 * b, length)
        ordinary = attention_cost(length, d, context.heads, length * b * (5 + self.random_blocks), block=b)
        copied = Cost(activations=2 * length * d * (2 + self.random_blocks))
        rows = attention_cost(ends, d, context.heads, ends * length, fused=True)
        return projections_cost(context, length) + ordinary + copied + rows


class BigBird(AttentionProjections):
    """The module of `BigBirdSpec`."""

    def __init__(self, spec: BigBirdSpec, context: LayerContext) -> None:
        super().__init__(context)
        self.spec = spec
        self.lots = Lots(context.pack, context.heads, spec.longest_input(context) // spec.block)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        length, b = x.shape[-2], self.spec.block
        q, k, v = self.project_folded(x)
        real = real_tokens(x, padding)
        qb, kb, vb, rb = (blocks(part, b) for part in (q, k, v, real))
        sources = [self._neighbours(qb, kb, vb, rb), self._ends(kb, vb, rb)]
        if self.spec.random_blocks:
            sources.append(self._random(kb, vb, rb, x.shape[:2]))
        ordinary = join_blocks(attend(qb, sources), length)
        last = max(b, (qb.shape[2] - 1) * b)
        parts = [self._all(q[:, :, :b], k, v, real, 0), ordinary[:, :, b:last]]
        if length > b:
            parts.append(self._all(q[:, :, last:], k, v, real, last))
        return self.project_output(torch.cat(parts, 2))

    def _all(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor, first: int) -> Tensor:
        """The output of the global block whose first token is `first`, which sees all tokens, [P, H, b, d_h]."""
        at = torch.arange(first, first + q.shape[-2], device=q.device)[:, None]
        seen = real.mT | (at == torch.arange(k.shape[-2], device=q.device))  # itself always, so that no row is empty
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)

    def _neighbours(self, qb: Tensor, kb: Tensor, vb: Tensor, rb: Tensor) -> Keys:
        """Blocks i-1, i, i+1 without the first and the last, which are a separate source."""
        at, of = positions(qb, 1, 1)
        of_block = of.div(qb.shape[3], rounding_mode="floor")
        inner = (of_block > 0) & (of_block < qb.shape[2] - 1)
        kn, vn, rn = (neighbourhood(part, 1, 1) for part in (kb, vb, rb))
        return Keys(kn, vn, (rn.mT & inner) | (at == of))

    @staticmethod
    def _ends(kb: Tensor, vb: Tensor, rb: Tensor) -> Keys:
        """The first and the last block."""
        k, v, seen = (torch.cat([part[:, :, 0], part[:, :, -1]], 2) for part in (kb, vb, rb))
        return Keys(k, v, seen.mT[:, :, None])

    def _random(self, kb: Tensor, vb: Tensor, rb: Tensor, packed: torch.Size) -> Keys:
        """r random blocks for each block."""
        chosen, there = self.lots(kb.shape[2], self.spec.random_blocks)  # [K, H, n, r]
        chosen, there = (part.repeat_interleave(packed[1], 0) for part in (chosen, there))  # [P, H, n, r]
        k, v, real = (
            take_rows(part.expand(*chosen.shape[:2], *part.shape[2:]).flatten(3), chosen).view(
                *chosen.shape[:3], -1, part.shape[-1]
            )  # [P, H, n, r·b, d_h]
            for part in (kb, vb, rb)
        )
        return Keys(k, v, (real & there.repeat_interleave(self.spec.block, -1)[..., None]).mT)


class Lots(Packed):
    """A random score for each head and pair of blocks; a block sees the eligible blocks with the highest scores."""

    lots: Tensor

    def __init__(self, pack: int, heads: int, count: int) -> None:
        super().__init__(pack)
        self.declare("lots", (heads, count, count), normal(1.0), trainable=False)

    def forward(self, count: int, take: int) -> tuple[Tensor, Tensor]:
        """The random blocks of the first `count` blocks, and which of them exist: both [K, H, n, take]."""
        i = torch.arange(count, device=self.lots.device)
        free = ((i[:, None] - i).abs() > 1) & (i > 0) & (i < count - 1)
        lots = self.lots[..., :count, :count].masked_fill(~free, -torch.inf)
        taken = lots.topk(min(take, count), -1)
        return taken.indices, taken.values > -torch.inf

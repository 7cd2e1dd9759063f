"""Softmax attention of blocks of queries over few keys, with which local, sparse and global patterns are built.

The keys of a block of queries come from several sources (its neighbourhood, summaries, global tokens ...); one softmax
runs over them all. No T x T matrix is made: the cost grows with the keys that a block sees.

Shapes: P pack and batch together, H heads, T tokens, d head width, n blocks, b tokens in a block, m keys of a block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.spec.cost import Cost


class Keys(NamedTuple):
    """One source of keys.

    Attributes:
        keys: [P, H, n, m, d], or [P, H, m, d] where every block has the same.
        values: As `keys`.
        visible: Broadcasts to [P, H, n, b, m]; True where a query sees a key. Each query must see a key of some source.
    """

    keys: Tensor
    values: Tensor
    visible: Tensor


def attend(q: Tensor, sources: Sequence[Keys]) -> Tensor:
    """softmax(q·Kᵀ/√d)·V over all sources together: q [P, H, n, b, d] to the same."""
    q = (q / math.sqrt(q.shape[-1])).contiguous()  # otherwise the product with each source would keep a copy
    logits = [_product(q, source.keys.mT).masked_fill(~source.visible, -math.inf) for source in sources]
    weights = torch.split(torch.cat(logits, -1).softmax(-1), [part.shape[-1] for part in logits], -1)
    parts = [_product(weight, source.values) for weight, source in zip(weights, sources, strict=True)]
    return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]


def _product(left: Tensor, right: Tensor) -> Tensor:
    """[P, H, n, b, x] times [P, H, n, x, y] or, without copies of it for each block, [P, H, x, y]."""
    if right.dim() == left.dim():
        return left @ right
    return (left.flatten(2, 3) @ right).view(*left.shape[:4], right.shape[-1])


def real_tokens(x: Tensor, padding: Tensor | None) -> Tensor:
    """Which tokens of x [K, B, T, D] are real, as [P, 1, T, 1] (P = 1 where all are, so that masks stay small)."""
    if padding is None:
        return torch.ones(1, 1, x.shape[-2], 1, dtype=torch.bool, device=x.device)
    return padding.flatten(0, 1)[:, None, :, None]


def blocks(x: Tensor, size: int) -> Tensor:
    """[..., T, d] to [..., n, size, d]; the last block is filled up with zeros."""
    fill = -x.shape[-2] % size
    filled = F.pad(x, (0, 0, 0, fill)) if fill else x
    return filled.reshape(*x.shape[:-2], -1, size, x.shape[-1])


def join_blocks(y: Tensor, length: int) -> Tensor:
    """[..., n, b, d] to [..., T, d]: `blocks` undone."""
    return y.flatten(-3, -2)[..., :length, :]


def neighbourhood(x: Tensor, before: int, after: int) -> Tensor:
    """Each block with its neighbours, [..., n, b, d] to [..., n, (before + 1 + after)·b, d]; zeros past both ends."""
    if before == after == 0:
        return x
    count = x.shape[-3]
    padded = F.pad(x, (0, 0, 0, 0, before, after))
    return torch.cat([padded[..., i : i + count, :, :] for i in range(before + 1 + after)], -2)


def window(q: Tensor, k: Tensor, v: Tensor, real: Tensor, reach: int, causal: bool) -> tuple[Tensor, Keys, Tensor]:
    """The queries in blocks, and what each block sees of the tokens at most `reach` away.

    Args:
        q: [P, H, T, d].
        k: [P, H, T, d].
        v: [P, H, T, d].
        real: [P, 1, T, 1], False where a key is padding. A token always sees itself.
        reach: The farthest distance seen, in tokens.
        causal: Whether only earlier tokens are seen.

    Returns:
        Queries [P, H, n, b, d], their keys, and the positions [n, 1, m] of those.
    """
    size, before, after = window_blocks(k.shape[-2], reach, causal)
    kb, vb, rb = (neighbourhood(blocks(x, size), before, after) for x in (k, v, real))
    qb = blocks(q, size)
    at, of = positions(qb, before, after)
    distance = at - of
    near = (distance <= reach) & (distance >= (0 if causal else -reach))
    return qb, Keys(kb, vb, (rb.mT & near) | (distance == 0)), of


def window_blocks(length: int, reach: int, causal: bool) -> tuple[int, int, int]:
    """Tokens in a block, blocks seen before and blocks seen after it, for windows of `reach`."""
    if reach >= length - 1:
        return length, 0, 0
    return max(1, reach), min(1, reach), 0 if causal else min(1, reach)


def positions(qb: Tensor, before: int, after: int) -> tuple[Tensor, Tensor]:
    """Positions in the text of blocked queries [n, b, 1] and of the keys in their neighbourhood [n, 1, m]."""
    count, size = qb.shape[-3:-1]
    start = torch.arange(count, device=qb.device)[:, None, None] * size
    inside = torch.arange(-before * size, (1 + after) * size, device=qb.device)
    return start + inside[before * size : (before + 1) * size, None], start + inside


def take_rows(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x [P, H, T, e] at index [P, H, ...]: [P, H, ..., e]. The index is kept once, and not for each column."""
    start = torch.arange(x.shape[0] * x.shape[1], device=x.device).view(*x.shape[:2], 1) * x.shape[2]
    return x.flatten(0, 2).index_select(0, (index.flatten(2) + start).flatten()).view(*index.shape, x.shape[-1])


def attention_cost(length: int, width: int, heads: int, pairs: int, *, fused: bool = False, block: int = 1) -> Cost:
    """Cost of softmax attention where each head makes `pairs` logits for `length` queries, masked ones counted.

    A fused kernel keeps no weights; in blocks of `block` tokens, those that fill up the last one are kept as well.
    """
    tokens = length + -length % block
    weights = 0 if fused else -(-pairs * tokens // max(1, length)) * heads
    return Cost(
        multiplications=2 * pairs * width,
        additions=pairs * (width - heads) + (pairs - length) * (width + heads),
        divisions=2 * pairs * heads,
        exponentiations=pairs * heads,
        activations=3 * tokens * width + weights,
    )

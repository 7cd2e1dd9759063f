"""Softmax attention of blocks of queries over few keys, with which local, sparse and global patterns are built.

The keys of a block of queries come from several sources (its neighbourhood, summaries, global tokens ...); one softmax
runs over them all. No T x T matrix is made: the cost grows with the keys that a block sees.

Shapes: P pack and batch together, H heads, T tokens, d head width, n blocks, b tokens in a block, m keys of a block.

`attend_to_chosen_blocks` reads the tokens of a few blocks of keys that each query chose, none of them later than it.
Only logits that are read are computed. Pairs of a query and a block that it chose are sorted by block and cut into
tiles of C pairs, each of which is one product with the keys of its block; a query adds up the exponentials of its
blocks. There are at most ⌊T·a/C⌋ + n tiles, whatever was chosen.

Shapes of `attend_to_chosen_blocks`: G heads that choose, m queries for each choice, n blocks of C tokens, at most a
chosen blocks for each query, Z tiles, R = P·G.
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


_TIMES = 8
"""How many times as many logits a mask over all of them must compute."""


def gathering_is_cheaper(length: int, size: int, active: int) -> bool:
    """Whether texts of this length are better read by `attend_to_chosen_blocks`."""
    return _TIMES * active * size <= length


def gathering_elements(length: int, size: int, active: int, many: int, width: int) -> int:
    """Numbers that autograd keeps for each head that chooses, but for the result: the tiles, and shares of the pairs.

    Indices take two numbers each, masks a quarter.
    """
    blocks = -(-length // size)
    pairs = length * min(active, blocks)
    slots = (pairs // size + blocks) * size
    return slots * (many * (width + size) + 2 * width + 2) + slots * size // 4 + pairs * (many + 4)


def attend_to_chosen_blocks(
    q: Tensor, k: Tensor, v: Tensor, chosen: Tensor, size: int, active: int, scale: float, real: Tensor | None = None
) -> Tensor:
    """Attention to the chosen blocks.

    Args:
        q: Queries, [P, G, m, T, d].
        k: Keys, [P, G, T, d].
        v: Values, [P, G, T, d].
        chosen: The blocks of each query, its own always among them, [P, G, T, n].
        size: C.
        active: a.
        scale: Factor of the logits.
        real: [P, T], False where a key is padding; a token always sees itself.

    Returns:
        [P, G, m, T, d].
    """
    many, length, width = q.shape[2:]
    rows, blocks, active = q.shape[0] * q.shape[1], chosen.shape[-1], min(active, chosen.shape[-1])
    pairs, tiles = length * active, length * active // size + blocks
    slots = tiles * size  # one more takes the pairs of queries that chose fewer blocks
    with torch.no_grad():
        choice = chosen.flatten(0, 1)
        taken, block = choice.to(torch.uint8).topk(active, -1)
        block, order = block.masked_fill(taken == 0, blocks).flatten(1).sort(stable=True)
        count = choice.sum(-2)
        ends = ((count + size - 1) // size).cumsum(-1)  # of the tiles of each block
        start = F.pad(ends, (1, -1)) * size - F.pad(count.cumsum(-1), (1, -1))
        slot = torch.arange(pairs, device=q.device) + F.pad(start, (0, 1)).gather(1, block)
        slot = slot.masked_fill(block == blocks, slots)
        query = slot.new_full((rows, slots + 1), length).scatter(1, slot, order // active)[:, :-1]
        slot_of_pair = torch.empty_like(slot).scatter(1, order, slot)
        of_tile = torch.searchsorted(
            ends, torch.arange(tiles, device=q.device).expand(rows, -1).contiguous(), right=True
        )
        of_tile = of_tile.clamp(max=blocks - 1)
        place = query.view(rows, tiles, size, 1)
        token = (of_tile[..., None] * size + torch.arange(size, device=q.device)).unsqueeze(2)
        seen = (token <= place) & (token < length)
        if real is not None:
            known = F.pad(real, (0, -length % size)).reshape(-1, 1, blocks, size).expand(-1, q.shape[1], -1, -1)
            seen = seen & (_take(known.flatten(0, 1).flatten(2), of_tile).unsqueeze(2) | (token == place))
        seen = seen.unsqueeze(3)  # [R, Z, C, 1, C]
        empty = ~seen.any(-1, keepdim=True)

    by_query = F.pad(q.transpose(2, 3).flatten(0, 1).flatten(2), (0, 0, 0, 1))  # [R, T + 1, m·d]
    in_tiles = _take(by_query, query).view(rows, tiles, size * many, width)
    keys, values = (
        _take(F.pad(x.flatten(0, 1), (0, 0, 0, -length % size)).reshape(rows, blocks, -1), of_tile).view(
            rows, tiles, size, width
        )
        for x in (k, v)
    )
    logits = (in_tiles @ keys.mT * scale).view(rows, tiles, size, many, size)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).masked_fill(~seen, -math.inf)
    top = logits.detach().amax(-1, keepdim=True)
    weights = (logits - top.masked_fill(empty, 0.0)).exp()
    total = weights.sum(-1).view(rows, slots, many)
    made = (weights.to(v.dtype).flatten(2, 3) @ values).view(rows, slots, many * width)

    def by_pair(x: Tensor, spare: float) -> Tensor:
        """[R, Z·C, ...] to [R, T, a, ...]."""
        return _take(F.pad(x, (0, 0, 0, 1), value=spare), slot_of_pair).view(rows, length, active, many, -1)

    tops = by_pair(top.view(rows, slots, many), -math.inf)
    share = (tops - tops.amax(2, keepdim=True)).exp()
    whole = (by_pair(total, 0.0) * share).sum(2)
    y = (by_pair(made, 0.0) * share).sum(2) / whole
    return torch.unflatten(y.to(q.dtype).transpose(1, 2), 0, q.shape[:2])


def _take(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x [R, s, e] at index [R, t]: [R, t, e]."""
    start = torch.arange(len(x), device=x.device)[:, None] * x.shape[1]
    return F.embedding(index + start, x.flatten(0, 1))

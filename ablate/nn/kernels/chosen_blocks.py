"""softmax(Q·Kᵀ·scale)·V over the tokens of a few blocks of keys that each query chose, none of them later than it.

Only logits that are read are computed. Pairs of a query and a block that it chose are sorted by block and cut into
tiles of C pairs, each of which is one product with the keys of its block; a query adds up the exponentials of its
blocks. There are at most ⌊T·a/C⌋ + n tiles, whatever was chosen.

Shapes: P pack and batch together, G heads that choose, m queries of one choice, T tokens, n blocks of C tokens, of
which a query chooses at most a, Z tiles, d head width, R = P·G.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

_TIMES = 8
"""How many times as many logits a mask over all of them must compute."""


def gathers(length: int, size: int, active: int) -> bool:
    """Whether texts of this length are better read by `gathered`."""
    return _TIMES * active * size <= length


def kept(length: int, size: int, active: int, many: int, width: int) -> int:
    """Numbers that autograd keeps for each head that chooses, but for the result: the tiles, and shares of the pairs.

    Indices take two numbers each, masks a quarter.
    """
    blocks = -(-length // size)
    pairs = length * min(active, blocks)
    slots = (pairs // size + blocks) * size
    return slots * (many * (width + size) + 2 * width + 2) + slots * size // 4 + pairs * (many + 4)


def gathered(
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

"""Reformer: queries are keys, and a token sees the tokens in the same bucket of a random hash.

Keys are normalised queries: k_j = q_j/‖q_j‖. Hash: bucket(q) = argmax[q·R; -q·R], R d_h x n/2 Gaussian. Tokens are
sorted by bucket, then position, and cut into chunks of m; token i sees j of its bucket P_i in its own and the previous
chunk, and itself only where it sees nothing else. Several hashes: o_i = Σ_r exp(z_i⁽ʳ⁾ - z_i)·o_i⁽ʳ⁾, where the logit
of a pair that N_ij hashes find is lowered by log N_ij: the result is one softmax over the union of the pairs found.

- Reformer (arXiv:2001.04451), section 2 and appendix A; https://arxiv.org/abs/2001.04451
- R is drawn once for each head, from the member's seed. The released code redraws it in each forward pass.
- The paper leaves the scale out "for clarity"; as in the authors' code the logit is q·k/‖k‖, without 1/√d_h.
- The authors' code, and `transformers`, let a chunk see across buckets, count a pair that two hashes find twice, and
  let the first chunk see the last; here it is as in the paper's text.
- Causal: token i sees the last m - 1 earlier tokens of its bucket. The boundaries of the paper's chunks depend on later
  tokens, which would leak the future; where a bucket holds at most m tokens the two are the same.

Shapes: K pack, B batch, T tokens, D width, H heads, P pack and batch together, R hashes, n chunks of m, d_h head width.
"""

from __future__ import annotations

import math
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from ablate.nn.kernels.block_attention import attention_cost, blocks, join_blocks, neighbourhood, take_rows
from ablate.nn.pack import Packed, join_heads, linear, normal, projections_cost, split_heads
from ablate.spec.base import refusal
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec

_LAST_RESORT = 1e5  # taken from the logit of a token with itself, as in the paper
_EPS = 1e-6


class ReformerSpec(MixerSpec):
    """Attention inside buckets of a locality-sensitive hash, with shared queries and keys."""

    source = "arXiv:2001.04451 sec. 2"
    complexity = "L·log(L)·d"
    uses_heads = True

    kind: Literal["reformer"] = "reformer"
    hashes: int = Field(default=4, ge=1, le=255)
    """Number of hashes."""
    chunk: int = Field(default=64, ge=1)
    """m, tokens in a chunk of the sorted text."""
    buckets: int | None = Field(default=None, ge=2)
    """Number of buckets of a hash, even; unless set, 2·context/m, as in the paper."""

    @model_validator(mode="after")
    def _buckets_are_even(self) -> Self:
        if self.buckets is not None and self.buckets % 2:
            raise refusal(
                ("buckets",),
                self.buckets,
                "each direction of the hash gives two buckets, so their number is even",
                f"Set `buckets` to {self.buckets + 1}.",
            )
        return self

    def directions(self, context: LayerContext) -> int:
        """Number of directions of a hash: half of its buckets."""
        return max(1, round(context.context / self.chunk)) if self.buckets is None else self.buckets // 2

    def build(self, context: LayerContext) -> Reformer:
        return Reformer(self, context)

    def cache(self, context: LayerContext, length: int) -> int:
        """Keys and values."""
        return 2 * length * context.width

    def cost(self, context: LayerContext, length: int) -> Cost:
        """Sorting is not counted."""
        d, h, rounds = context.width, context.heads, self.hashes
        n = self.directions(context)
        hashing = Cost(multiplications=length * n * d, additions=length * n * (d - h))
        size, looks = _chunks(length, self.chunk)
        tokens = length + -length % size
        attention = attention_cost(length, d, h, length * size * (1 + looks), block=size)
        keys = Cost(multiplications=2 * length * d, additions=length * d, divisions=length * h, activations=length * d)
        joined = Cost(
            multiplications=length * d,
            additions=length * d,
            exponentiations=length * h,
            # A copy of the logits and their mask (a quarter of the size); keys and values again for each earlier chunk.
            activations=5 * tokens * h * size * (1 + looks) // 4 + (1 + 2 * looks) * tokens * d,
        )
        return projections_cost(context, length, count=3) + keys + (hashing + attention + joined) * rounds


class Reformer(nn.Module):
    """The module of `ReformerSpec`."""

    def __init__(self, spec: ReformerSpec, context: LayerContext) -> None:
        super().__init__()
        d = context.width
        self.spec = spec
        self.heads = context.heads
        self.causal = context.causal
        self.query = linear(context, d, d)
        self.value = linear(context, d, d)
        self.output = linear(context, d, d, role="output")
        self.hash = Hash(context.pack, context.heads, spec.hashes, d // context.heads, spec.directions(context))

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        q, v = (split_heads(project(x), self.heads).flatten(0, 1) for project in (self.query, self.value))
        buckets = self.hash(q.detach().view(*x.shape[:2], *q.shape[1:])).flatten(0, 1)
        if padding is not None:
            # Padded tokens share a last bucket without real tokens.
            buckets = buckets.masked_fill(~padding.flatten(0, 1)[:, None, None, :], self.hash.buckets)
        y = attend_in_buckets(q, v, buckets, self.spec.chunk, self.causal)
        mixed: Tensor = self.output(join_heads(y.view(*x.shape[:2], *y.shape[1:])))
        return mixed


class Hash(Packed):
    """argmax[q·R; -q·R], for each head and hash."""

    rotations: Tensor

    def __init__(self, pack: int, heads: int, hashes: int, width: int, directions: int) -> None:
        super().__init__(pack)
        self.buckets = 2 * directions
        self.declare("rotations", (heads, hashes, width, directions), normal(1.0), trainable=False)

    def forward(self, q: Tensor) -> Tensor:
        """[K, B, H, T, d_h] to buckets [K, B, H, R, T]."""
        rotated = torch.einsum("kbhtd,khrdn->kbhrtn", q, self.rotations.to(q.dtype))
        return torch.cat([rotated, -rotated], -1).argmax(-1)


def attend_in_buckets(q: Tensor, v: Tensor, buckets: Tensor, chunk: int, causal: bool) -> Tensor:
    """Attention of each token to its bucket, in chunks of the sorted text.

    Args:
        q: Queries, [P, H, T, d_h]; normalised, they are the keys.
        v: Values, [P, H, T, d_h].
        buckets: [P, H, R, T].
        chunk: m.
        causal: Whether only earlier tokens are seen.

    Returns:
        [P, H, T, d_h].
    """
    rounds, length = buckets.shape[2:]
    size, looks = _chunks(length, chunk)
    order = buckets.sort(stable=True).indices  # [P, H, R, T]: the token at each slot
    slots = order.argsort(-1)  # the slot of each token
    k = q * (q.square().sum(-1, keepdim=True) + _EPS * q.shape[-1]).rsqrt()

    def in_order(part: Tensor) -> Tensor:
        """[P, H, T, e] to chunks [P, H, R, n, m, e]."""
        return blocks(take_rows(part, order), size)

    # Bucket and slot of each token in every round; empty slots after the text see only themselves.
    places = torch.stack([buckets, slots], -1).transpose(2, 3).flatten(3)  # [P, H, T, R·2]
    of_query = in_order(places + 1) - 1  # [P, H, R, n, m, R·2], -1 where the slot is empty
    of_key = neighbourhood(of_query + 1, looks, 0) - 1
    at = torch.arange(of_query.shape[3] * size, device=q.device).view(-1, size, 1)
    itself = at == neighbourhood(at + 1, looks, 0).mT - 1  # [n, m, looks·m + m]

    def finds(r: int) -> Tensor:
        """Whether each query sees each key in round r: [P, H, R, n, m, looks·m + m]."""
        (bucket, slot), (other_bucket, other_slot) = (
            (of[..., 2 * r, None], of[..., 2 * r + 1, None]) for of in (of_query, of_key)
        )
        if causal:
            behind = slot - other_slot.mT
            near = (behind >= 0) & (behind < size)
        else:
            behind = slot.div(size, rounding_mode="floor") - other_slot.mT.div(size, rounding_mode="floor")
            near = (behind >= 0) & (behind <= 1)
        return near & (bucket == other_bucket.mT) & (bucket >= 0)

    times, here = finds(0).to(torch.uint8), [finds(0)[:, :, 0]]
    for r in range(1, rounds):
        found_by_r = finds(r)
        times += found_by_r
        here.append(found_by_r[:, :, r])
    logits = in_order(q) @ neighbourhood(in_order(k), looks, 0).mT
    logits = logits - times.clamp(min=1).to(logits.dtype).log() - _LAST_RESORT * itself
    logits = logits.masked_fill(~(torch.stack(here, 2) | itself), -math.inf)
    z = logits.logsumexp(-1, keepdim=True)
    o = (logits - z).exp() @ neighbourhood(in_order(v), looks, 0)
    in_turn = slots + length * torch.arange(rounds, device=q.device)[:, None]
    o, z = (take_rows(join_blocks(part, length).flatten(2, 3), in_turn) for part in (o, z))  # [P, H, R, T, ...]
    return (z.softmax(2) * o).sum(2)


def _chunks(length: int, chunk: int) -> tuple[int, int]:
    """Number of tokens in a chunk, and of earlier chunks that it sees."""
    return (chunk, 1) if length > chunk else (length, 0)

"""Reformer against one softmax over the union of what its hashes find; what they find, and what they must hide."""

from __future__ import annotations

import pytest
import torch
from every_pair import every_pair
from patterns import LENGTHS, B, D, H, K, Slow, assert_is, heads_of, mixer_of
from torch import Tensor, nn

from ablate.kinds.mixers.reformer import ReformerSpec
from ablate.spec.layer import LayerContext


def found_in_round(buckets: list[int], chunk: int, causal: bool) -> list[set[int]]:
    """Which tokens each token sees in one round: its bucket, in its own and the previous chunk of the sorted text."""
    T = len(buckets)
    order = sorted(range(T), key=lambda t: (buckets[t], t))
    slot = {t: s for s, t in enumerate(order)}
    seen: list[set[int]] = []
    for i in range(T):
        same = [j for j in range(T) if buckets[j] == buckets[i]]
        if causal:
            earlier = [j for j in same if j < i]
            seen.append(set(earlier[max(0, len(earlier) - (chunk - 1)) :]))
        else:
            seen.append({j for j in same if 0 <= slot[i] // chunk - slot[j] // chunk <= 1})
    return seen


def reference(mixer: nn.Module, causal: bool) -> Slow:
    """o_i = softmax over the union of all rounds of q_i·q_j/‖q_j‖, without itself unless alone."""

    def slow(k: int, x: Tensor, real: list[bool]) -> Tensor:
        T = len(x)
        q, v = heads_of(mixer, "query", k, x), heads_of(mixer, "value", k, x)
        joined = []
        for h in range(H):
            seen: list[set[int]] = [set() for _ in range(T)]
            for r in range(mixer.spec.hashes):
                rotated = q[h].detach() @ mixer.hash.rotations[k, h, r]
                buckets = torch.cat([rotated, -rotated], 1).argmax(1).tolist()
                buckets = [bucket if is_real else 10**6 for bucket, is_real in zip(buckets, real, strict=True)]
                for i, found in enumerate(found_in_round(buckets, min(mixer.spec.chunk, T), causal)):
                    seen[i] |= found
            rows = []
            for i in range(T):
                others = sorted(seen[i] - {i}) or [i]
                keys = q[h, others] / torch.sqrt((q[h, others] ** 2).mean(-1, keepdim=True) + 1e-6) / (D // H) ** 0.5
                rows.append((keys @ q[h, i]).softmax(0) @ v[h, others])
            joined.append(torch.stack(rows))
        return torch.cat(joined, 1) @ mixer.output.weight[k]

    return slow


@every_pair(
    {
        "hashes, chunk, buckets": [(1, 4, 6), (3, 3, 4), (2, 5, None), (4, 64, 2)],
        "length": LENGTHS,
        "causal": [True, False],
        "padded": [False, True],
    }
)
def test_reformer_is_one_softmax_over_what_its_hashes_find(
    hashes: int, chunk: int, buckets: int | None, length: int, causal: bool, padded: bool
) -> None:
    mixer = mixer_of(ReformerSpec(hashes=hashes, chunk=chunk, buckets=buckets), length, causal)
    assert_is(mixer, reference(mixer, causal), length, padded)


def test_near_vectors_fall_into_one_bucket() -> None:
    """What a locality-sensitive hash is for: the nearer the directions, the oftener the bucket is the same."""
    mixer = mixer_of(ReformerSpec(hashes=200, chunk=5, buckets=8), 20)
    base = torch.randn(K, B, H, 20, D // H, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    other = torch.randn(base.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    same = [(mixer.hash(base) == mixer.hash(base + far * other)).double().mean() for far in (0.0, 0.1, 0.5, 1e6)]
    assert same[0] == 1
    assert same[0] > same[1] > same[2] > same[3]
    assert 1 / 8 < same[3] < 0.2, "far vectors meet a little oftener than in buckets of one size"
    torch.testing.assert_close(mixer.hash(7 * base), mixer.hash(base))


def test_members_hash_with_their_own_rotations() -> None:
    rotations = mixer_of(ReformerSpec(), 7).hash.rotations
    assert not torch.equal(rotations[0], rotations[1])
    assert "hash.rotations" not in dict(mixer_of(ReformerSpec(), 7).named_parameters())


@pytest.mark.parametrize(("context", "chunk", "buckets"), [(1024, 64, 32), (128, 64, 4), (50, 64, 2), (1, 64, 2)])
def test_buckets_are_twice_the_chunks_unless_set(context: int, chunk: int, buckets: int) -> None:
    assert 2 * ReformerSpec(chunk=chunk).directions(LayerContext(1, D, H, 5, context, causal=False)) == buckets

"""Sparse patterns (BigBird, Longformer, local, Sparse Transformer) against the whole matrix, masked."""

from __future__ import annotations

import pytest
import torch
from every_pair import every_pair
from patterns import LENGTHS, H, K, Slow, assert_is, by_matrix, heads_of, matrix, mixer_of
from torch import Tensor, nn

from ablate.kinds.mixers.bigbird import BigBirdSpec
from ablate.kinds.mixers.patterns import LocalSpec, LongformerSpec, SparseSpec

HEADS = 3


def drawn(mixer: nn.Module, n: int, r: int) -> list[list[list[set[int]]]]:
    """By member, head and block: the blocks drawn."""
    blocks, there = mixer.lots(n, r)
    return [
        [
            [
                {int(j) for j, is_there in zip(blocks[k, h, i], there[k, h, i], strict=True) if is_there}
                for i in range(n)
            ]
            for h in range(HEADS)
        ]
        for k in range(len(blocks))
    ]


@every_pair({"block, r": [(1, 3), (3, 2), (4, 1), (5, 0), (64, 3)], "length": LENGTHS, "padded": [False, True]})
def test_bigbird_is_its_pattern(block: int, r: int, length: int, padded: bool) -> None:
    mixer = mixer_of(BigBirdSpec(block=block, random_blocks=r), length)
    n = -(-length // block)
    chosen = drawn(mixer, n, r) if r else [[[set()] * n] * HEADS] * K

    def seen_by(k: int, h: int, at: int) -> set[int]:
        ends = {0, n - 1}
        return set(range(n)) if at in ends else {at - 1, at, at + 1} | ends | chosen[k][h][at]

    members = [by_matrix(mixer, lambda h, i, j, k=k: j // block in seen_by(k, h, i // block)) for k in range(K)]
    assert_is(mixer, lambda k, x, real: members[k](k, x, real), length, padded)


@pytest.mark.parametrize(("n", "r"), [(12, 3), (9, 1), (6, 5), (3, 2)])
def test_random_blocks_are_neither_near_nor_global(n: int, r: int) -> None:
    mixer = mixer_of(BigBirdSpec(block=1, random_blocks=r), n)
    by_member = drawn(mixer, n, r)
    for by_head in by_member:
        for by_block in by_head:
            for i, blocks in enumerate(by_block):
                allowed = {j for j in range(1, n - 1) if abs(i - j) > 1}
                assert blocks <= allowed
                assert len(blocks) == min(r, len(allowed))
    if n == 12:
        assert by_member[0] != by_member[1], "members draw from their own seeds"
        assert by_member[0][0] != by_member[0][1], "and each head for itself"


def test_every_allowed_block_is_drawn_equally_often() -> None:
    mixer = mixer_of(BigBirdSpec(block=1, random_blocks=2), 12, pack=400)
    counts = torch.zeros(12)
    for by_head in drawn(mixer, 12, 2):
        for j in by_head[0][5]:
            counts[j] += 1
    assert set(counts.nonzero()[:, 0].tolist()) == {1, 2, 3, 7, 8, 9, 10}
    expected = 400 * 2 / 7
    assert (counts[counts > 0] - expected).abs().max() < 4 * (expected * 5 / 7) ** 0.5


def reference(mixer: nn.Module, window: int, g: int, causal: bool) -> Slow:
    """Section 3.1: |i - j| ≤ w/2 or j global; rows of global tokens by the global maps, over everything."""

    def slow(k: int, x: Tensor, real: list[bool]) -> Tensor:
        names = ("query", "key", "value", *(("global_query", "global_key", "global_value") if g else ()))
        maps = {name: heads_of(mixer, name, k, x) for name in names}
        joined = []
        for h in range(H):
            rows = []
            for i in range(len(x)):
                prefix = "global_" if i < g else ""
                seen = [
                    j == i or (real[j] and (i < g or j < g or abs(i - j) <= window / 2) and (j <= i or not causal))
                    for j in range(len(x))
                ]
                q, key, v = (maps[prefix + name][h] for name in ("query", "key", "value"))
                rows.append(matrix(q[i : i + 1], key, [seen]) @ v)
            joined.append(torch.cat(rows))
        return torch.cat(joined, 1) @ mixer.output.weight[k]

    return slow


@every_pair(
    {
        "window, g": [(4, 0), (2, 1), (6, 4), (64, 2)],
        "length": LENGTHS,
        "causal": [True, False],
        "padded": [False, True],
    }
)
def test_longformer_is_its_equation(window: int, g: int, length: int, causal: bool, padded: bool) -> None:
    mixer = mixer_of(LongformerSpec(window=window, global_tokens=g), length, causal)
    assert_is(mixer, reference(mixer, window, g, causal), length, padded)


def test_global_maps_exist_only_with_global_tokens() -> None:
    names = {name for name, _ in mixer_of(LongformerSpec(global_tokens=0), 5).named_parameters()}
    assert names == {"query.weight", "key.weight", "value.weight", "output.weight"}


@every_pair({"window": [1, 4, 50], "length": LENGTHS, "causal": [True, False], "padded": [False, True]})
def test_blocks_do_not_see_each_other(window: int, length: int, causal: bool, padded: bool) -> None:
    mixer = mixer_of(LocalSpec(window=window), length, causal)
    assert_is(
        mixer, by_matrix(mixer, lambda h, i, j: i // window == j // window and (j <= i or not causal)), length, padded
    )


@every_pair({"window": [1, 2, 5, 33], "length": LENGTHS, "causal": [True, False], "padded": [False, True]})
def test_window_slides(window: int, length: int, causal: bool, padded: bool) -> None:
    mixer = mixer_of(LocalSpec(pattern="sliding", window=window), length, causal)
    assert_is(mixer, by_matrix(mixer, lambda h, i, j: abs(i - j) < window and (j <= i or not causal)), length, padded)


@pytest.mark.independent_check("mixers", "sparse", against="arXiv:1904.10509 sec. 4.3, the whole matrix")
@every_pair(
    {
        "stride, summary": [(5, 2), (4, 1), (6, 6), (50, 3)],
        "length": LENGTHS,
        "causal": [True, False],
        "padded": [False, True],
    }
)
def test_own_block_and_the_ends_of_others_are_seen(
    stride: int, summary: int, length: int, causal: bool, padded: bool
) -> None:
    def sees(h: int, i: int, j: int) -> bool:
        return (i // stride == j // stride or j % stride >= stride - summary) and (j <= i or not causal)

    mixer = mixer_of(SparseSpec(stride=stride, summary=summary), length, causal)
    assert_is(mixer, by_matrix(mixer, sees), length, padded)

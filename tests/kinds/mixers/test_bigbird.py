"""BigBird against the whole matrix; the random blocks are what the paper allows, fixed by the seed."""

from __future__ import annotations

import pytest
import torch
from patterns import LENGTHS, K, assert_is, assert_is_full_attention, by_matrix, mixer_of
from torch import nn

from ablate.kinds.mixers.bigbird import BigBirdSpec

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


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("block", "r"), [(1, 3), (3, 2), (4, 1), (5, 0), (64, 3)])
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


@pytest.mark.parametrize("block", [5, 7, 13, 64])
def test_up_to_three_blocks_see_everything(block: int) -> None:
    assert_is_full_attention(mixer_of(BigBirdSpec(block=block), 13), 13, causal=False)


def test_all_blocks_drawn_is_full_attention() -> None:
    assert_is_full_attention(mixer_of(BigBirdSpec(block=2, random_blocks=14), 33), 33, causal=False)

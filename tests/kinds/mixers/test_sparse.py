"""The fixed pattern of the Sparse Transformer against the whole matrix."""

from __future__ import annotations

import pytest
from patterns import LENGTHS, assert_is, assert_is_full_attention, by_matrix, mixer_of
from pydantic import ValidationError

from ablate.kinds.mixers.sparse import SparseSpec


@pytest.mark.independent_check("mixers", "sparse", against="arXiv:1904.10509 sec. 4.3, the whole matrix")
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("stride", "summary"), [(5, 2), (4, 1), (6, 6), (50, 3)])
def test_own_block_and_the_ends_of_others_are_seen(
    stride: int, summary: int, length: int, causal: bool, padded: bool
) -> None:
    def sees(h: int, i: int, j: int) -> bool:
        return (i // stride == j // stride or j % stride >= stride - summary) and (j <= i or not causal)

    mixer = mixer_of(SparseSpec(stride=stride, summary=summary), length, causal)
    assert_is(mixer, by_matrix(mixer, sees), length, padded)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize(("stride", "summary"), [(13, 1), (64, 8), (4, 4), (1, 1)])
def test_one_block_or_a_summary_of_everything_is_full_attention(stride: int, summary: int, causal: bool) -> None:
    assert_is_full_attention(mixer_of(SparseSpec(stride=stride, summary=summary), 13, causal), 13, causal)


def test_summary_longer_than_a_block_is_refused() -> None:
    with pytest.raises(ValidationError, match="a block of 4 tokens cannot have 5 summary tokens") as caught:
        SparseSpec(stride=4, summary=5)
    error = caught.value.errors()[0]
    assert error["loc"] == ("summary",)
    assert error["ctx"]["remedy"] == "Set `summary` to at most `stride`."

"""Local attention against the whole matrix, and against full attention where the window holds the whole text."""

from __future__ import annotations

import pytest
from patterns import LENGTHS, assert_is, assert_is_full_attention, by_matrix, mixer_of

from ablate.kinds.mixers.local import LocalSpec


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("window", [1, 4, 50])
def test_blocks_do_not_see_each_other(window: int, length: int, causal: bool, padded: bool) -> None:
    mixer = mixer_of(LocalSpec(window=window), length, causal)
    assert_is(
        mixer, by_matrix(mixer, lambda h, i, j: i // window == j // window and (j <= i or not causal)), length, padded
    )


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("window", [1, 2, 5, 33])
def test_window_slides(window: int, length: int, causal: bool, padded: bool) -> None:
    mixer = mixer_of(LocalSpec(pattern="sliding", window=window), length, causal)
    assert_is(mixer, by_matrix(mixer, lambda h, i, j: abs(i - j) < window and (j <= i or not causal)), length, padded)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("window", [13, 14, 400])
@pytest.mark.parametrize("pattern", ["blocks", "sliding"])
def test_window_as_long_as_the_text_is_full_attention(pattern: str, window: int, causal: bool) -> None:
    spec = LocalSpec.model_validate({"pattern": pattern, "window": window})
    assert_is_full_attention(mixer_of(spec, 13, causal), 13, causal)

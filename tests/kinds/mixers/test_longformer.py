"""Longformer against the whole matrix, in which the rows of global tokens have their own maps."""

from __future__ import annotations

import pytest
import torch
from patterns import LENGTHS, H, Slow, assert_is, assert_is_full_attention, heads_of, matrix, mixer_of
from pydantic import ValidationError
from torch import Tensor, nn

from ablate.kinds.mixers.longformer import LongformerSpec


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


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("window", "g"), [(4, 0), (2, 1), (6, 4), (64, 2)])
def test_longformer_is_its_equation(window: int, g: int, length: int, causal: bool, padded: bool) -> None:
    mixer = mixer_of(LongformerSpec(window=window, global_tokens=g), length, causal)
    assert_is(mixer, reference(mixer, window, g, causal), length, padded)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize(("window", "g"), [(24, 0), (100, 0), (24, 3), (2, 13), (2, 20)])
def test_window_over_the_whole_text_is_full_attention(window: int, g: int, causal: bool) -> None:
    """Also where all tokens are global, or the global maps are those of the others."""
    mixer = mixer_of(LongformerSpec(window=window, global_tokens=g), 13, causal)
    if g:
        with torch.no_grad():
            for name in ("query", "key", "value"):
                getattr(mixer, f"global_{name}").weight.copy_(getattr(mixer, name).weight)
    assert_is_full_attention(mixer, 13, causal)


def test_global_maps_exist_only_with_global_tokens() -> None:
    names = {name for name, _ in mixer_of(LongformerSpec(global_tokens=0), 5).named_parameters()}
    assert names == {"query.weight", "key.weight", "value.weight", "output.weight"}


def test_odd_window_is_refused() -> None:
    with pytest.raises(ValidationError, match="multiple of 2"):
        LongformerSpec(window=5)

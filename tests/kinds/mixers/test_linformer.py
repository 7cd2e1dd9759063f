"""Linformer against eq. 7; with E and F the identity it is full attention."""

from __future__ import annotations

import math

import pytest
import torch
from every_pair import every_pair
from patterns import LENGTHS, D, H, Slow, assert_is, heads_of, mixer_of
from torch import Tensor, nn

from ablate.kinds.mixers.linformer import LinformerSpec


def reference(mixer: nn.Module) -> Slow:
    def slow(k: int, x: Tensor, real: list[bool]) -> Tensor:
        q, key, v = (heads_of(mixer, name, k, x) for name in ("query", "key", "value"))
        E = mixer.reduce_keys.weight[k]
        F = E if mixer.reduce_values is None else mixer.reduce_values.weight[k]
        kept = torch.tensor(real, dtype=x.dtype)[:, None]
        joined = []
        for h in range(H):
            of = h if len(E) > 1 else 0
            rows, values = E[of][:, : len(x)] @ (key[h] * kept), F[of][:, : len(x)] @ (v[h] * kept)
            joined.append((q[h] @ rows.mT / math.sqrt(D // H)).softmax(-1) @ values)
        return torch.cat(joined, 1) @ mixer.output.weight[k]

    return slow


@pytest.mark.independent_check("mixers", "linformer", against="arXiv:2006.04768 eq. 7")
@every_pair(
    {"sharing": ["none", "headwise", "key_value"], "rank": [1, 5, 40], "length": LENGTHS, "padded": [False, True]}
)
def test_linformer_is_its_equation(sharing: str, rank: int, length: int, padded: bool) -> None:
    mixer = mixer_of(LinformerSpec.model_validate({"rank": rank, "sharing": sharing, "length": 33}), length)
    assert_is(mixer, reference(mixer), length, padded)

"""Linformer against eq. 7; with E and F the identity it is full attention."""

from __future__ import annotations

import math

import pytest
import torch
from patterns import LENGTHS, D, H, K, Slow, assert_is, heads_of, mixer_of, text
from torch import Tensor, nn

from ablate.kinds.mixers.attention import AttentionSpec
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
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("rank", [1, 5, 40])
@pytest.mark.parametrize("sharing", ["none", "headwise", "key_value"])
def test_linformer_is_its_equation(sharing: str, rank: int, length: int, padded: bool) -> None:
    mixer = mixer_of(LinformerSpec.model_validate({"rank": rank, "sharing": sharing}), length)
    assert_is(mixer, reference(mixer), length, padded)


@pytest.mark.independent_check("mixers", "linformer", against="full attention, where the maps are the identity")
@pytest.mark.parametrize("sharing", ["none", "headwise", "key_value"])
def test_identity_maps_are_full_attention(sharing: str) -> None:
    mixer = mixer_of(LinformerSpec.model_validate({"rank": 13, "sharing": sharing}), 13)
    with torch.no_grad():
        for reduce in (mixer.reduce_keys, mixer.reduce_values or mixer.reduce_keys):
            reduce.weight.copy_(torch.eye(13, dtype=torch.float64))
    attention = mixer_of(AttentionSpec(), 13)
    attention.load_state_dict({name: v for name, v in mixer.state_dict().items() if not name.startswith("reduce")})
    # Without padding: a padded token is a row of zeros here, and no row at all to attention.
    torch.testing.assert_close(mixer(text(13)), attention(text(13)), rtol=1e-9, atol=1e-9)


def test_shorter_text_is_a_text_padded_to_the_length() -> None:
    mixer = mixer_of(LinformerSpec(rank=4, length=20), 13)
    x = torch.cat([text(9), text(4, seed=1)], 2)
    padding = (torch.arange(13) < 9).expand(K, x.shape[1], -1)
    torch.testing.assert_close(mixer(x, padding)[:, :, :9], mixer(x[:, :, :9]))

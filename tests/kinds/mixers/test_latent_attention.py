"""Multi-head latent attention against its equations, in float64; `trained` compares whole models of DeepSeek-V3."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from slow_forms import assert_equal_forms, perturbed
from torch import Tensor

from ablate.contracts.mixer import CONTRACT
from ablate.kinds.mixers.latent_attention import LatentAttentionSpec
from ablate.kinds.norms.rms import RMSNormSpec
from ablate.kinds.positions.rotary import Rotary, RotarySpec
from ablate.nn.model import build_model
from ablate.spec.layer import LayerContext
from ablate.spec.model import ModelSpec
from ablate.spec.sentences import describe

D, H, T, N, R, V, C = 24, 3, 11, 6, 4, 5, 10
WIDTHS = {"kv_rank": C, "plain_width": N, "turned_width": R, "value_width": V}
CONTEXT = LayerContext(1, D, H, depth=3, context=T, causal=True, init_std=0.5)


def latent(settings: dict[str, Any], context: LayerContext) -> Any:
    return perturbed(LatentAttentionSpec.model_validate(settings), context)


def slow(mixer: Any, k: int, x: Tensor, real: list[bool]) -> Tensor:
    """One sequence [T, D] to the same, without positions (as in Kimi Linear)."""
    down = x @ mixer.down.weight[k]
    c, k_R = down[:, :C], down[:, C:]
    c = c / (c.pow(2).mean(1, keepdim=True) + 1e-6).sqrt() * mixer.norm.weight[k]
    heads = []
    for h in range(H):
        q = (x @ mixer.query.weight[k])[:, h * (N + R) : (h + 1) * (N + R)]
        made = (c @ mixer.up.weight[k])[:, h * (N + V) : (h + 1) * (N + V)]
        rows = []
        for i in range(len(x)):
            seen = [j for j in range(len(x)) if (real[j] or i == j) and (j <= i or not mixer.causal)]
            seen = [j for j in seen if abs(i - j) < (mixer.window or T)]
            logits = torch.stack([(q[i, :N] @ made[j, :N] + q[i, N:] @ k_R[j]) / math.sqrt(N + R) for j in seen])
            rows.append(logits.softmax(0) @ made[seen, N:])
        heads.append(torch.stack(rows))
    return torch.cat(heads, 1) @ mixer.output.weight[k]


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
def test_it_is_its_equations(causal: bool, window: int | None, padded: bool) -> None:
    mixer = latent(WIDTHS, replace(CONTEXT, pack=2, causal=causal, window=window))
    assert_equal_forms(mixer, slow, T, D, padded)


def test_queries_of_low_rank_keep_the_contract() -> None:
    assert CONTRACT.check(LatentAttentionSpec(query_rank=5)) == []


def test_it_keeps_the_numbers_of_deepseek() -> None:
    """576 numbers a token in each layer, and the 187 million parameters of a layer of DeepSeek-V3."""
    told = replace(CONTEXT, width=7168, heads=128, head_width=128)
    spec = LatentAttentionSpec(query_rank=1536, kv_rank=512, plain_width=128, turned_width=64, value_width=128)
    assert spec.cache(told, 100) == 57600
    maps = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    cost, norms = spec.cost(told, 3), RMSNormSpec().cost(1536, 3) + RMSNormSpec().cost(512, 3)
    assert cost.parameters == maps + 1536 + 512
    pairs = 128 * (1 + 2 + 3)  # of a query and a key that it sees, each with a scale, an exponential and a share
    assert (cost.exponentiations, cost.divisions) == (pairs, 2 * pairs + norms.divisions)
    # What the paper says of widths that are not set.
    usual = LatentAttentionSpec().widths(told)
    assert (usual.plain, usual.turned, usual.value, usual.latent) == (128, 64, 128, 512)


def test_channels_that_cannot_be_rotated_are_refused() -> None:
    told = replace(CONTEXT, positions=RotarySpec())
    with pytest.raises(ValidationError) as caught:
        LatentAttentionSpec(turned_width=5).check(told)
    ((loc, sentence),) = describe(caught.value)
    assert loc == ("turned_width",)
    assert "rotary positions cannot be applied" in sentence
    assert "Set an even `turned_width`" in sentence


@pytest.mark.parametrize(("width", "heads"), [(21, 3), (22, 4)])
def test_a_model_with_an_odd_width_over_heads_rotates_its_own_channels(width: int, heads: int) -> None:
    """Rotary positions turn the d_R = 4 channels of `turned_width`; the width over the heads, 7 or 5, is not turned."""
    spec = {"family": "decoder", "width": width, "heads": heads, "depth": 1, "positions": "rotary",
            "block": {"mixer": {"kind": "latent_attention", "turned_width": 4}}}  # fmt: skip
    model = build_model(ModelSpec.model_validate(spec), vocabulary=7, context=9, seeds=[0])
    assert sum(isinstance(module, Rotary) for module in model.modules()) == 1
    assert model(torch.arange(9).view(1, 1, 9) % 7).isfinite().all()

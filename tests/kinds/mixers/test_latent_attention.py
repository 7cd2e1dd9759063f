"""Multi-head latent attention against DeepSeek-V3's of `transformers`, and its own equations; in float64."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from copied import Pair, compare, linear, norm
from double_precision import compute_in_double
from pydantic import ValidationError
from slow_forms import assert_equal_forms, perturbed
from torch import Tensor

from ablate.contracts.mixer import check_mixer
from ablate.kinds.mixers.latent_attention import LatentAttentionSpec
from ablate.kinds.positions.rotary import Rotary, RotarySpec
from ablate.nn.model.build import build_model
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext
from ablate.spec.model import ModelSpec
from ablate.spec.sentences import describe

D, H, T, N, R, V, C = 24, 3, 11, 6, 4, 5, 10
WIDTHS = {"kv_rank": C, "plain_width": N, "turned_width": R, "value_width": V}
YARN = {"kind": "yarn", "factor": 40, "original_context": 64, "temperature": 1, "all_channels": 1}
YARN_THEIRS = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 40.0, "original_max_position_embeddings": 64,
               "mscale": 1.0, "mscale_all_dim": 1.0}  # fmt: skip
CONTEXT = LayerContext(1, D, H, depth=3, context=T, causal=True, init_std=0.5)


def latent(settings: dict[str, Any], context: LayerContext) -> Any:
    return perturbed(LatentAttentionSpec.model_validate(settings), context)


def turned_rows(matrix: Tensor, before: int) -> Tensor:
    """Their rotary channels stand in pairs (2i, 2i + 1), ours as halves (i, i + R/2): rows [before, R, ...]."""
    heads = matrix.view(-1, before + R, matrix.shape[-1])
    order = torch.arange(R).view(2, R // 2).mT.flatten()
    return torch.cat([heads[:, :before], heads[:, before:][:, order]], 1).reshape(matrix.shape)


@pytest.mark.independent_check("mixers", "latent_attention", against="DeepSeek-V3 of `transformers`")
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("yarn", [False, True], ids=["plain", "yarn"])
@pytest.mark.parametrize("rank", [None, 7])
def test_it_is_that_of_deepseek(rank: int | None, yarn: bool, padded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers import modeling_rope_utils
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as module

    compute_in_double(monkeypatch, modeling_rope_utils, module)
    config = transformers.DeepseekV3Config(
        hidden_size=D, num_attention_heads=H, num_key_value_heads=H, q_lora_rank=rank, kv_lora_rank=C,
        qk_nope_head_dim=N, qk_rope_head_dim=R, v_head_dim=V, num_hidden_layers=2, max_position_embeddings=64,
        rope_parameters=YARN_THEIRS if yarn else {"rope_type": "default", "rope_theta": 1e4}, pad_token_id=None,
    )  # fmt: skip
    config._attn_implementation = "eager"
    positions = RotarySpec.model_validate({"scaling": YARN} if yarn else {})
    ours = latent({**WIDTHS, "query_rank": rank}, replace(CONTEXT, positions=positions))
    theirs = module.DeepseekV3Attention(config, 0).double()
    queries = theirs.q_proj if rank is None else theirs.q_b_proj
    pairs = [
        Pair((ours.query.weight,), queries.weight, lambda one: turned_rows(one.mT, N)),
        Pair((ours.down.weight,), theirs.kv_a_proj_with_mqa.weight, lambda one: turned_rows(one.mT, C)),
        *norm(ours.norm, theirs.kv_a_layernorm),
        *linear(ours.up, theirs.kv_b_proj),
        *linear(ours.output, theirs.o_proj),
    ]
    if rank is not None:
        pairs += [*linear(ours.query_down, theirs.q_a_proj), *norm(ours.query_norm, theirs.q_a_layernorm)]
    assert len(pairs) == len(list(theirs.parameters())) == len(list(ours.parameters()))
    for pair in pairs:
        pair.copy()
    x = torch.randn(2, T, D, generator=stream(1, "x"), dtype=torch.float64)
    real = torch.arange(T) < torch.tensor([[T - 4], [T]]) if padded else torch.ones(2, T, dtype=torch.bool)
    mask = torch.where(torch.ones(T, T, dtype=torch.bool).tril() & real[:, None, None, :], 0.0, -1e30).double()
    turned = module.DeepseekV3RotaryEmbedding(config).double()(x, torch.arange(T)[None])
    reference, _ = theirs(hidden_states=x, position_embeddings=turned, attention_mask=mask)
    compare(pairs, ours(x[None], real[None] if padded else None), reference, real, rtol=1e-9, atol=1e-9)


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
    x = torch.randn(2, 2, T, D, generator=stream(1, "x"), dtype=torch.float64).requires_grad_()
    place = torch.arange(T)
    real = torch.stack([place < 8, place >= 3] * 2).view(2, 2, T) if padded else torch.ones(2, 2, T, dtype=torch.bool)
    assert_equal_forms(mixer, slow, x, real, padded=padded)


def test_queries_of_low_rank_keep_the_contract() -> None:
    assert check_mixer(LatentAttentionSpec(query_rank=5)) == []


def test_it_keeps_the_numbers_of_deepseek() -> None:
    """576 numbers a token in each layer, and the 187 million parameters of a layer of DeepSeek-V3."""
    told = replace(CONTEXT, width=7168, heads=128, head_width=128)
    spec = LatentAttentionSpec(query_rank=1536, kv_rank=512, plain_width=128, turned_width=64, value_width=128)
    assert spec.cache(told, 100) == 57600
    maps = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    assert spec.cost(told, 3).parameters == maps + 1536 + 512
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


def test_an_odd_number_of_rotated_channels_is_refused_at_the_path_of_the_mixer() -> None:
    spec = {"family": "decoder", "width": 24, "heads": 3, "depth": 1, "positions": "rotary",
            "block": {"mixer": {"kind": "latent_attention", "turned_width": 3}}}  # fmt: skip
    with pytest.raises(ValidationError) as caught:
        ModelSpec.model_validate(spec).check_context(9)
    ((loc, _),) = describe(caught.value)
    assert loc == ("block", "mixer", "turned_width")

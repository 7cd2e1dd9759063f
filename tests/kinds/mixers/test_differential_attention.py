"""Differential attention against the authors' code written again, and that of `transformers`; in float64."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from copied import Pair, compare, linear
from slow_forms import assert_equal_forms, perturbed
from torch import Tensor

from ablate.kinds.mixers.differential_attention import DifferentialAttentionSpec
from ablate.kinds.positions.rotary import RotarySpec
from ablate.nn.kernels.softmax_attention import rotate
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext
from ablate.trained.hugging_face.check import in_double

D, H, T = 24, 3, 11
CONTEXT = LayerContext(1, D, H, depth=9, context=T, causal=True, init_std=0.5, layer=4)


def differential(settings: dict[str, Any], context: LayerContext) -> Any:
    return perturbed(DifferentialAttentionSpec.model_validate(settings), context)


def slow(mixer: Any, k: int, x: Tensor, real: list[bool]) -> Tensor:
    """One sequence [T, D] to the same; heads 2h and 2h + 1 of the queries are the pair of head h."""
    width = mixer.norm.weight.shape[1]
    d, many = width // 2, mixer.heads // mixer.kv_heads
    start = 0.8 - 0.6 * math.exp(-0.3 * 4)
    share = mixer.share
    lam = (share.query_1[k] @ share.key_1[k]).exp() - (share.query_2[k] @ share.key_2[k]).exp() + start
    Q, K, V = (x @ getattr(mixer, name).weight[k] for name in ("query", "key", "value"))
    heads = []
    for h in range(mixer.heads):
        g = h // many
        made = []
        for which in (0, 1):
            q, key = Q[:, (2 * h + which) * d :][:, :d], K[:, (2 * g + which) * d :][:, :d]
            if mixer.positions is not None:
                q, key = rotate(q), rotate(key)
            logits = (q @ key.mT) / math.sqrt(d)
            hidden = torch.tensor(
                [[not ((real[j] or i == j) and (j <= i or not mixer.causal) and abs(i - j) < (mixer.window or T))
                  for j in range(len(x))] for i in range(len(x))]
            )  # fmt: skip
            made.append(logits.masked_fill(hidden, -math.inf).softmax(-1))
        y = (made[0] - lam * made[1]) @ V[:, g * width : (g + 1) * width]
        y = y / (y.pow(2).mean(1, keepdim=True) + 1e-5).sqrt() * mixer.norm.weight[k]
        heads.append((1 - start) * y)
    return torch.cat(heads, 1) @ mixer.output.weight[k]


FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "groups, rotary": ({"kv_heads": 1}, {"positions": RotarySpec()}),
    "window, wide heads": ({}, {"window": 3, "head_width": 12}),
    "both sides": ({}, {"causal": False}),
}


@pytest.mark.independent_check("mixers", "differential_attention", against="the authors' code written again")
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("name", FORMS)
def test_it_is_its_equations(name: str, padded: bool) -> None:
    settings, more = FORMS[name]
    mixer = differential(settings, replace(CONTEXT, pack=2, **more))
    assert_equal_forms(mixer, slow, T, D, padded)


@pytest.mark.independent_check("mixers", "differential_attention", against="DiffLlama of `transformers`")
@pytest.mark.parametrize("groups", [1, 3])
def test_it_is_that_of_transformers(groups: int) -> None:
    """DiffLlama: queries h and h + H/2 are a pair, as are the halves of the values; the norm has no gain."""
    transformers = pytest.importorskip("transformers")
    from transformers.models.diffllama import modeling_diffllama as module

    config = transformers.DiffLlamaConfig(
        hidden_size=D, num_attention_heads=2 * H, num_key_value_heads=2 * groups, head_dim=4, num_hidden_layers=9,
        rms_norm_eps=1e-5, max_position_embeddings=64, attention_dropout=0.0, pad_token_id=None,
    )  # fmt: skip
    config._attn_implementation = "eager"
    told = replace(CONTEXT, positions=RotarySpec(), head_width=8)
    ours, theirs = differential({"kv_heads": groups}, told), module.DiffLlamaAttention(config, 4).double().eval()
    ours.norm.weight.data.fill_(1.0)

    def halves(one: Tensor) -> Tensor:
        """Ours [pair, which, d] as theirs [which, pair, d], rows of nn.Linear."""
        return one.mT.unflatten(0, (-1, 2, 4)).transpose(0, 1).flatten(0, 2)

    pairs = [
        Pair((ours.query.weight,), theirs.q_proj.weight, halves),
        Pair((ours.key.weight,), theirs.k_proj.weight, halves),
        Pair((ours.value.weight,), theirs.v_proj.weight, halves),
        *linear(ours.output, theirs.o_proj),
        Pair((ours.share.query_1,), theirs.lambda_q1),
        Pair((ours.share.query_2,), theirs.lambda_q2),
        Pair((ours.share.key_1,), theirs.lambda_k1),
        Pair((ours.share.key_2,), theirs.lambda_k2),
    ]
    assert len(pairs) == len(list(theirs.parameters()))
    for pair in pairs:
        pair.copy()
    x = torch.randn(2, T, D, generator=stream(1, "x"), dtype=torch.float64)
    mask = torch.where(torch.ones(T, T, dtype=torch.bool).tril(), 0.0, -1e30).double().expand(2, 1, T, T)
    with in_double(module):
        turned = module.DiffLlamaRotaryEmbedding(config)(x, torch.arange(T)[None])
        reference, _ = theirs(x, position_embeddings=turned, attention_mask=mask)
    compare(pairs, ours(x[None]), reference, rtol=1e-10, atol=1e-10)

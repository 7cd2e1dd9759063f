"""Attention to chosen blocks: MoBA (arXiv:2502.13189) and NSA (arXiv:2502.11089), query by query and block by block."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from every_pair import every_pair
from pydantic import ValidationError
from slow_forms import assert_equal_forms, assert_token_by_token, perturbed
from torch import Tensor

from ablate.kinds.mixers.attention import AttentionSpec
from ablate.kinds.mixers.native_sparse_attention import NativeSparseAttentionSpec
from ablate.nn.kernels import block_attention
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec

D, H, T = 12, 4, 17
CONTEXT = LayerContext(2, D, H, depth=2, context=T, causal=True, init_std=0.5)
FORMS: dict[str, dict[str, Any]] = {
    "two of blocks of three": {"blocks": {"size": 3, "active": 2}},
    "grouped": {"blocks": {"size": 4, "active": 3}, "kv_heads": 2},
    "forgets, with a sink": {"blocks": {"size": 4, "active": 2}, "forget": "of_input", "logits": {"sinks": True}},
    "its own alone": {"blocks": {"size": 5, "active": 1}},
}


def mean(rows: list[Tensor]) -> Tensor:
    return torch.stack(rows).mean(0)


def slow_moba(mixer: Any, member: int, x: Tensor, real: list[bool]) -> Tensor:
    """One sequence, query by query and block by block."""
    w = {name: value[member] for name, value in mixer.named_parameters()}
    spec, d, groups = mixer.spec.blocks, D // H, mixer.kv_heads
    queries, keys, values = (x @ w[f"{name}.weight"] for name in ("query", "key", "value"))
    gates = (x @ w["forget.map.weight"] + w["forget.bias"]).sigmoid().log() if "forget.bias" in w else None
    rows = []
    for i in range(len(x)):
        heads = []
        for head in range(H):
            mine, theirs = (slice(n * d, (n + 1) * d) for n in (head, head // (H // groups)))
            q, own = queries[i, mine], i // spec.size
            k = keys[:, theirs]
            spans = [range(n * spec.size, min(len(x), (n + 1) * spec.size)) for n in range(own)]
            likes = {
                n: (q @ mean([k[j] for j in span if real[j]])).item()
                for n, span in enumerate(spans)
                if any(real[j] for j in span)
            }
            best = sorted(likes, key=lambda n: -likes[n])[: spec.active - 1]
            read = [j for n in best for j in spans[n]] + list(range(own * spec.size, i + 1))
            logits = {}
            for j in read:
                if real[j] or j == i:
                    logits[j] = q @ k[j] / math.sqrt(d)
                    if gates is not None:
                        logits[j] = logits[j] + sum(gates[m, head] * real[m] for m in range(j + 1, i + 1))
            whole = sum(logit.exp() for logit in logits.values())
            whole = whole + (w["sinks.logit"][head].exp() if "sinks.logit" in w else 0)
            heads.append(sum(logits[j].exp() / whole * values[j, theirs] for j in logits))
        rows.append(torch.cat(heads) @ w["output.weight"])  # type: ignore[arg-type]
    return torch.stack(rows)


TIMES = {"masked": block_attention._TIMES, "gathered": 0}
"""How a whole text is read: by all logits, or as long texts are."""


@pytest.mark.independent_check("mixers", "attention", against="MoBA, arXiv:2502.13189 eqs 5 to 8, query by query")
@every_pair({"name": FORMS, "padded": [False, True], "form": TIMES})
def test_chosen_blocks_are_those_of_moba(name: str, padded: bool, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_attention, "_TIMES", TIMES[form])
    spec = AttentionSpec.model_validate({"kind": "attention", **FORMS[name]})
    mixer = perturbed(spec, CONTEXT)
    x, _ = assert_equal_forms(mixer, slow_moba, T, D, padded)
    assert_token_by_token(mixer, x)


@pytest.mark.parametrize(
    "plain",
    [
        {"kind": "attention", "blocks": {"size": 4, "active": 3}, "kv_heads": 2, "scale": "length"},
        {"kind": "native_sparse_attention", "size": 4, "active": 5, "last": 6, "kv_heads": 2},
    ],
    ids=lambda plain: plain["kind"],
)
def test_long_texts_read_the_chosen_blocks_alone(plain: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same outputs and gradients to 1e-10, as all logits give."""
    context = replace(CONTEXT, context=90)
    mixer = perturbed(MixerSpec.parse(plain), context)
    x = torch.randn(2, 2, 90, D, generator=stream(1, "x"), dtype=torch.float64).requires_grad_()
    real = torch.arange(90) < torch.tensor([[90], [51]]).expand(2, 2, 1)
    direction = torch.randn(x.shape, generator=stream(2, "direction"), dtype=torch.float64)
    found = []
    for times in (0, 1000):
        monkeypatch.setattr(block_attention, "_TIMES", times)
        y = mixer(x, real)
        found.append((y, torch.autograd.grad((y * direction).sum(), [x, *mixer.parameters()])))
    (fast, gradients), (slow, expected) = found
    torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(gradients, expected, rtol=1e-10, atol=1e-10)


def slow_nsa(mixer: Any, member: int, x: Tensor, real: list[bool]) -> Tensor:
    """One sequence: three attentions of each head, over lists of tokens and of means."""
    w = {name: value[member] for name, value in mixer.named_parameters()}
    spec, d, groups, many = mixer.spec, D // H, mixer.groups, H // mixer.groups

    def attended(q: Tensor, k: list[Tensor], v: list[Tensor]) -> tuple[Tensor, Tensor]:
        weights = torch.stack([q @ key / math.sqrt(d) for key in k]).softmax(0)
        return weights @ torch.stack(v), weights

    keys, values = (x @ w[f"{name}.weight"] for name in ("key", "value"))
    rows = []
    for i in range(len(x)):
        own, outputs = i // spec.size, {}
        for group in range(groups):
            theirs = slice(group * d, (group + 1) * d)
            k, v = (list(made[:, theirs]) for made in (keys, values))
            spans = [
                [j for j in range(n * spec.size, min(len(x), (n + 1) * spec.size)) if real[j]] for n in range(own + 1)
            ]
            ended = [n for n in range(own + 1) if (n + 1) * spec.size - 1 <= i and spans[n]]
            queries = [
                (x[i] @ w["query.weight"])[head * d : (head + 1) * d]
                for head in range(group * many, (group + 1) * many)
            ]
            likes = dict.fromkeys(ended, 0.0)
            means = [torch.zeros(d).to(x)] * many
            if ended:
                made = [
                    attended(
                        q,
                        [mean([k[j] for j in spans[n]]) for n in ended],
                        [mean([v[j] for j in spans[n]]) for n in ended],
                    )
                    for q in queries
                ]
                means = [y for y, _ in made]
                likes = {n: sum(weights[at].item() for _, weights in made) for at, n in enumerate(ended)}
            fixed = {0, own, max(own - 1, 0)}
            best = sorted((n for n in ended if n not in fixed), key=lambda n: -likes[n])[
                : max(0, spec.active - len(fixed))
            ]
            whole = [j for n in sorted({*fixed, *best}) for j in spans[n] if j < i] + [i]
            window = [j for j in range(max(0, i - spec.last + 1), i) if real[j]] + [i]
            for at, q in enumerate(queries):
                head = group * many + at
                gates = (x[i] @ w["gate.weight"]).view(H, 3)[head].sigmoid()
                parts = [
                    means[at],
                    *(attended(q, [k[j] for j in read], [v[j] for j in read])[0] for read in (whole, window)),
                ]
                outputs[head] = sum(gate * part for gate, part in zip(gates, parts, strict=True))
        rows.append(torch.cat([outputs[head] for head in range(H)]) @ w["output.weight"])  # type: ignore[arg-type]
    return torch.stack(rows)


@pytest.mark.independent_check(
    "mixers", "native_sparse_attention", against="arXiv:2502.11089 with the means of flash-linear-attention"
)
@every_pair(
    {
        "settings": [
            {"size": 2, "active": 4, "last": 3},
            {"size": 3, "active": 3, "last": 5, "kv_heads": 2},
            {"size": 64},
        ],
        "padded": [False, True],
        "form": TIMES,
    }
)
def test_its_three_branches_are_those_of_nsa(
    settings: dict[str, Any], padded: bool, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_attention, "_TIMES", TIMES[form])
    spec = NativeSparseAttentionSpec.model_validate({"kind": "native_sparse_attention", **settings})
    mixer = perturbed(spec, CONTEXT)
    x, _ = assert_equal_forms(mixer, slow_nsa, T, D, padded)
    assert spec.cost(CONTEXT, T).parameters == sum(value[0].numel() for value in mixer.parameters())
    assert spec.cache(CONTEXT, T) == sum(kept[0, 0].numel() for kept in assert_token_by_token(mixer, x))


@pytest.mark.parametrize(("size", "active"), [(4, 2), (5, 4), (64, 1)])
def test_the_cost_counts_the_logits_that_are_read(size: int, active: int) -> None:
    spec = AttentionSpec.model_validate({"kind": "attention", "blocks": {"size": size, "active": active}})
    assert spec.blocks is not None
    q, k = (torch.randn(1, 1, 1, T, 3, generator=stream(0, name)) for name in "qk")
    seen = spec.blocks.readable(q, k) & torch.ones(T, T, dtype=torch.bool).tril()
    assert spec.blocks.pairs(T) == seen.sum()
    whole = AttentionSpec().cost(CONTEXT, T)
    assert spec.cost(CONTEXT, T).exponentiations == whole.exponentiations - H * (
        T * (T + 1) // 2 - spec.blocks.pairs(T)
    )


@pytest.mark.parametrize(
    ("plain", "more"),
    [({"softmax": False}, {}), ({"shaping": "shaped"}, {}), ({}, {"causal": False}), ({}, {"window": 4})],
)
def test_what_cannot_be_is_refused(plain: dict[str, Any], more: dict[str, Any]) -> None:
    context = LayerContext(1, D, H, depth=2, context=T, **{"causal": True, **more})
    with pytest.raises(ValidationError) as caught:
        MixerSpec.parse({"kind": "attention", "blocks": {}, **plain}).check(context)
    assert [error["loc"] for error in caught.value.errors()] == [("blocks",)]

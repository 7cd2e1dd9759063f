"""PaTH attention (arXiv:2505.16381) against its products of matrices, written out pair by pair."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from slow_forms import assert_equal_forms, assert_token_by_token, perturbed
from torch import Tensor

from ablate.kinds.mixers.path_attention import PathAttentionSpec, path_logits
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext

D, H, T = 12, 4, 9
CONTEXT = LayerContext(2, D, H, depth=2, context=T, causal=True, init_std=0.5)
FORMS: dict[str, dict[str, Any]] = {
    "default": {"rank": 5},
    "full": {"rank": None, "taps": 0},
    "grouped": {"kv_heads": 2, "query_key_norm": "rms"},
    "forgets": {"forget": "of_input"},
}


def slow(mixer: Any, member: int, x: Tensor, real: list[bool]) -> Tensor:
    """One sequence: H_t as matrices, multiplied one after the other."""
    w = {name: value[member] for name, value in mixer.named_parameters()}
    d, groups, eye = D // H, mixer.groups, torch.eye(D // H, dtype=x.dtype)

    def rms(y: Tensor, name: str) -> Tensor:
        weight = w.get(f"{name}.weight")
        return y if weight is None else y / (y.square().mean() + 1e-6).sqrt() * weight

    inputs = [
        (token @ w["down.weight"] if "down.weight" in w else token) @ w["up.weight"] * r
        for token, r in zip(x, real, strict=True)
    ]
    taps = w["convolution.weight"] if "convolution.weight" in w else torch.ones(groups * d, 1).to(x)
    count = taps.shape[1]
    us = [
        F.silu(sum(taps[:, count - 1 - lag] * inputs[t - lag] for lag in range(count) if t >= lag))
        for t in range(len(x))  # type: ignore[arg-type]
    ]
    rows = []
    for i in range(len(x)):
        heads = []
        for head in range(H):
            group = head // (H // groups)
            mine, theirs = slice(head * d, (head + 1) * d), slice(group * d, (group + 1) * d)
            q = rms((x[i] @ w["query.weight"])[mine], "query_norm")
            turned, forgotten, logits = q, torch.zeros(()).to(x), {}
            for j in range(i, -1, -1):
                k = rms((x[j] @ w["key.weight"])[theirs], "key_norm")
                if real[j] or j == i:
                    logits[j] = k @ turned / math.sqrt(d) + forgotten
                direction = us[j][theirs] / us[j][theirs].norm().clamp(min=1e-12)
                beta = 2 * (x[j] @ w["strength.weight"] + w["strength.bias"]).sigmoid()[group] * real[j]
                turned = (eye - beta * torch.outer(direction, direction)) @ turned
                if "forget.bias" in w:
                    gate = (x[j] @ w["forget.map.weight"] + w["forget.bias"]).sigmoid()[head]
                    forgotten = forgotten + gate.log() * real[j]
            weights = dict(zip(logits, torch.stack(list(logits.values())).softmax(0), strict=True))
            heads.append(sum(weights[j] * (x[j] @ w["value.weight"])[theirs] for j in weights))
        rows.append(torch.cat(heads) @ w["output.weight"])  # type: ignore[arg-type]
    return torch.stack(rows)


@pytest.mark.independent_check(
    "mixers", "path_attention", against="arXiv:2505.16381, products of matrices pair by pair"
)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_each_form_is_the_paper_s(name: str, padded: bool) -> None:
    spec = PathAttentionSpec.model_validate({"kind": "path_attention", **FORMS[name]})
    mixer = perturbed(spec, CONTEXT)
    x, _ = assert_equal_forms(mixer, slow, T, D, padded)
    assert spec.cost(CONTEXT, T).parameters == sum(value[0].numel() for value in mixer.parameters())
    assert spec.cache(CONTEXT, T) == sum(kept[0, 0].numel() for kept in assert_token_by_token(mixer, x))


@pytest.mark.parametrize("length", [1, 4, 11, 16])
def test_blocks_do_not_change_the_products(length: int) -> None:
    q, k, w = (torch.randn(2, length, 5, generator=stream(0, name), dtype=torch.float64) for name in "qkw")
    w, beta = F.normalize(w, dim=-1), torch.rand(2, length, 1, generator=stream(0, "b"), dtype=torch.float64) * 2
    leaves = [tensor.requires_grad_() for tensor in (q, k, w, beta)]
    direction = torch.randn(2, length, length, generator=stream(0, "g"), dtype=torch.float64)
    made = [path_logits(q, k, w, beta, block).tril() for block in (length, 4)]
    torch.testing.assert_close(*made, rtol=1e-11, atol=1e-11)
    for left, right in zip(*(torch.autograd.grad((y * direction).sum(), leaves) for y in made), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)

"""Synthesizers against their equations, and as attention where their logits say so."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from every_pair import every_pair
from patterns import LENGTHS, D, H, K, Slow, assert_is, heads_of, mixer_of
from torch import Tensor, nn

from ablate.kinds.mixers.synthesizer import SynthesizerSpec
from ablate.nn.pack import initialise
from ablate.spec.layer import LayerContext

SETTINGS: dict[str, dict[str, Any]] = {
    "random": {},
    "fixed": {"trainable": False},
    "factorised": {"type": "factorised", "rank": 3},
    "dense": {"type": "dense"},
}


def synthetic(mixer: nn.Module, type_: str, k: int, h: int, x: Tensor) -> Tensor:
    """S of one head, [T, T]."""
    T, d_h, logits = len(x), D // H, mixer.logits
    if type_ == "factorised":
        return sum(torch.outer(logits.rows[k, h, :T, c], logits.columns[k, h, :T, c]) for c in range(3))
    if type_ == "dense":
        columns = slice(h * d_h, (h + 1) * d_h)
        W_1, b_1 = logits.hidden.weight[k][:, columns], logits.hidden.bias[k][columns]
        rows = [torch.clamp(x_i @ W_1 + b_1, min=0) @ logits.weight[k, h] + logits.bias[k, h] for x_i in x]
        return torch.stack(rows)[:, :T]
    return logits.weight[k, h, :T, :T]


def reference(mixer: nn.Module, type_: str, causal: bool) -> Slow:
    def slow(k: int, x: Tensor, real: list[bool]) -> Tensor:
        T = len(x)
        v = heads_of(mixer, "value", k, x)
        joined = []
        for h in range(H):
            S = synthetic(mixer, type_, k, h, x)
            if mixer.mixture is not None:
                q, key = (heads_of(mixer, name, k, x)[h] for name in ("query", "key"))
                e = torch.exp(mixer.mixture.weight[k])
                S = e[0] / e.sum() * S + e[1] / e.sum() * (q @ key.mT) / math.sqrt(D // H)
            seen = [[j == i or (real[j] and (j <= i or not causal)) for j in range(T)] for i in range(T)]
            A = torch.exp(S) * torch.tensor(seen)
            joined.append(A / A.sum(-1, keepdim=True) @ v[h])
        return torch.cat(joined, 1) @ mixer.output.weight[k]

    return slow


@pytest.mark.independent_check("mixers", "synthesizer", against="arXiv:2005.00743 sec. 3")
@every_pair(
    {
        "name": SETTINGS,
        "dot_product": [False, True],
        "length": LENGTHS,
        "causal": [True, False],
        "padded": [False, True],
    }
)
def test_synthesizer_is_its_equation(name: str, dot_product: bool, length: int, causal: bool, padded: bool) -> None:
    spec = SynthesizerSpec.model_validate({**SETTINGS[name], "dot_product": dot_product, "length": 35})
    mixer = mixer_of(spec, length, causal)
    assert_is(mixer, reference(mixer, spec.type, causal), length, padded)


def test_mixture_starts_at_a_half_each_and_fixed_logits_are_not_trained() -> None:
    mixer = SynthesizerSpec(dot_product=True, trainable=False).build(LayerContext(K, D, H, 5, 13, causal=False))
    initialise(mixer, [3, 4])
    assert torch.equal(mixer.mixture.weight.softmax(-1), torch.full((K, 2), 0.5))
    assert "logits.weight" not in dict(mixer.named_parameters())
    fixed = dict(mixer.named_buffers())["logits.weight"]
    assert fixed.std() > 0
    assert not torch.equal(fixed[0], fixed[1])

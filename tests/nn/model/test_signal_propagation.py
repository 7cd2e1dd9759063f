"""Differences between tokens in a deep stack at the start of training (arXiv:2311.01906, §3.1 and 4.1).

Without skips attention averages: in depth all tokens become one (rank collapse, arXiv:2103.03404). Shaped attention and
Value-SkipInit start as the identity between their orthogonal maps, so that the angles between tokens stay.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from families import a_family_for
from torch import Tensor

from ablate.nn.model import build_model
from ablate.nn.pack.initial import stream
from ablate.spec.model import ModelSpec

V, D, H, T, DEPTH = 31, 48, 4, 20, 24

ORTHOGONAL = {"kind": "dense", "init": "orthogonal"}
NAIVE = {"kind": "attention", "value": ORTHOGONAL, "output": ORTHOGONAL}


def block(mixer: dict[str, Any], *, mlp: bool) -> dict[str, Any]:
    """A block without a skip round its attention; an MLP has a skip and a branch that starts small, as in the paper."""
    if not mlp:
        return {"mixer": mixer, "mlp": "none", "skips": {"mixer": 0, "mlp": 0}}
    return {
        "mixer": mixer,
        "skips": {"mixer": 0},
        "gains": {"mlp_branch": {"init": 0.424, "depth_scaling": "inverse_sqrt"}},
    }


@torch.no_grad()
def cosines(family: str, spec: Any, exceptions: dict[str, Any] | None = None) -> list[float]:
    """Mean cosine of the pairs of tokens before the first block and after each."""
    plain = {"family": family, "depth": DEPTH, "width": D, "heads": H, "block": spec, "exceptions": exceptions or {}}
    model: Any = build_model(ModelSpec.model_validate(plain), vocabulary=V, context=T, seeds=[0, 1]).eval()
    x = torch.randn(2, 8, T, D, generator=stream(0, "tokens"))
    found = [mean_cosine(x)]
    for layer in model.blocks:
        x = layer(x)
        found.append(mean_cosine(x))
    return found


def mean_cosine(x: Tensor) -> float:
    unit = F.normalize(x, dim=-1)
    apart = ~torch.eye(T, dtype=torch.bool)
    return (unit @ unit.mT)[..., apart].mean().item()


@pytest.mark.parametrize("mlp", [False, True], ids=["attention alone", "with MLPs"])
@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_naive_attention_without_skips_makes_all_tokens_one(family: str, mlp: bool) -> None:
    by_depth = cosines(family, block(NAIVE, mlp=mlp))
    assert abs(by_depth[0]) < 0.05
    assert by_depth[DEPTH // 2] > 0.8
    assert by_depth[-1] > 0.95
    assert all(deeper > shallower - 0.02 for shallower, deeper in pairwise(by_depth))


@pytest.mark.parametrize("mlp", [False, True], ids=["attention alone", "with MLPs"])
@pytest.mark.parametrize("shaping", ["shaped", "value_skipinit"])
@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_shaping_keeps_tokens_distinct(family: str, shaping: str, mlp: bool) -> None:
    by_depth = cosines(family, block({**NAIVE, "shaping": shaping}, mlp=mlp))
    if mlp:
        assert max(map(abs, by_depth)) < 0.2
    else:
        assert by_depth == pytest.approx(by_depth[:1] * (DEPTH + 1), abs=1e-3)


@pytest.mark.parametrize("name", ["pre_ln", "parallel", "shaped", "value_skipinit", "sas", "sas_p", "sas_p_no_norm"])
def test_the_named_blocks_keep_tokens_distinct(name: str) -> None:
    by_depth = cosines(a_family_for(name), name)
    assert max(map(abs, by_depth)) < 0.2

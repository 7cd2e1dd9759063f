"""Kinds of MLP, norm and residual, embeddings and heads under bfloat16 products."""

from __future__ import annotations

from typing import Any

import pytest
from random_tokens import CPU, RandomTokens, variant

from ablate.training.members import Member
from ablate.training.pack import Pack

BLOCKS: dict[str, dict[str, Any]] = {
    "mixture": {"mlp": {"kind": "mixture", "experts": 4, "shared": 1, "balance_loss": 0.01, "balance_rate": 0.001}},
    "squared": {"mlp": {"kind": "plain", "activation": "relu_squared"}, "arrangement": "mlp_first"},
    "dynamic_tanh": {"norm": "dynamic_tanh"},
    "sandwich": {"norm": {"kind": "layer", "place": "sandwich", "bias": False}},
    "layer_scale": {"residual": "layer_scale"},
    "unet_skip": {"residual": {"kind": "unet_skip", "embedding": {"init": 0.1, "trainable": True}}},
    "hyper_connections": {"residual": "hyper_connections"},
    "manifold_hyper_connections": {"residual": "manifold_hyper_connections"},
    "normalised": {"residual": "normalised", "norm": "none"},
    "ends": {},
}
ENDS = {"bigram": {"width": 4}, "smear": {}, "logit_cap": 30, "z_loss": 1e-3, "multi_token": {}, "initialiser": "mup"}
ENDS["loops"] = [{"first": 1, "last": 1, "times": 2}]


@pytest.mark.parametrize("name", BLOCKS)
def test_a_step_in_bfloat16_is_that_in_single_precision_within_its_rounding(name: str) -> None:
    """Bfloat16 has 8 bits; losses near log 17 agree to a hundredth, before and after a step of Muon or AdamW."""
    model = {"block": {"mixer": "attention", **BLOCKS[name]}, **(ENDS if name == "ends" else {})}
    optimizer = {"kind": "adamw" if name == "ends" else "muon", "lr": 1e-3}
    losses = []
    for precision in ("fp32", "bf16"):
        members = [Member(variant(model, precision=precision, optimizer=optimizer), seed) for seed in (3, 4)]
        with Pack(members, RandomTokens(), CPU) as pack:
            pack.step(1)
            first = pack.last_loss()
            pack.step(2)
            losses.append([*first, *pack.last_loss()])
    assert losses[1] == pytest.approx(losses[0], rel=1e-2)

"""Initial weights have the spread that their rule says."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from ablate.nn.model.build import build_model
from ablate.spec.initialiser import InitialiserSpec
from ablate.spec.model import ModelSpec

D, DEPTH, STD = 96, 3, 0.05
BLOCK: dict[str, Any] = {"mixer": "attention", "mlp": "gated"}


def spreads(kind: Any) -> dict[str, float]:
    spec = ModelSpec.model_validate(
        {"family": "decoder", "depth": DEPTH, "width": D, "heads": 4, "init_std": STD, "tied_head": False,
         "block": BLOCK, "initialiser": kind}
    )  # fmt: skip
    model = build_model(spec, vocabulary=301, context=64, seeds=[0])
    return {name: tensor.std().item() for name, tensor in model.named_parameters() if tensor.dim() == 3}


@pytest.mark.parametrize(
    ("kind", "hidden", "output", "down", "embedding", "head"),
    [
        ("normal", STD, STD, STD, STD, STD),
        ("depth_scaled", STD, STD / math.sqrt(6), STD / math.sqrt(6), STD, STD),
        ("zero_output", STD, 0, 0, STD, STD),
        ("fan_in", *[1 / math.sqrt(3 * D)] * 2, 1 / math.sqrt(12 * D), STD, 1 / math.sqrt(3 * D)),
        (
            {"kind": "fan_in", "distribution": "normal", "gain": 1},
            *[1 / math.sqrt(D)] * 2, 1 / math.sqrt(4 * D), STD, 1 / math.sqrt(D),
        ),
    ],
)  # fmt: skip
def test_spread(kind: Any, hidden: float, output: float, down: float, embedding: float, head: float) -> None:
    found = spreads(kind)
    for layer in range(DEPTH):
        block = f"blocks.{layer}"
        for name in ("mixer.query", "mixer.key", "mixer.value", "mlp.up", "mlp.gate"):
            assert found[f"{block}.{name}.weight"] == pytest.approx(hidden, rel=0.05), name
        assert found[f"{block}.mixer.output.weight"] == pytest.approx(output, rel=0.05)
        assert found[f"{block}.mlp.down.weight"] == pytest.approx(down, rel=0.05)
    assert found["embedding.weight"] == pytest.approx(embedding, rel=0.05)
    assert found["positions.weight"] == pytest.approx(embedding, rel=0.05)
    assert found["head.weight"] == pytest.approx(head, rel=0.05)


def test_fan_in_is_the_default_of_torch() -> None:
    torch.manual_seed(0)
    theirs = torch.nn.Linear(D, 4 * D).weight
    spec = InitialiserSpec.parse("fan_in")
    context = ModelSpec.model_validate(
        {"family": "decoder", "depth": 1, "width": D, "heads": 4, "block": BLOCK}
    ).layer_context(8)
    ours = spec.initial("hidden", D, 4 * D, context)(torch.empty(D, 4 * D), torch.Generator().manual_seed(0))
    assert ours.std().item() == pytest.approx(theirs.std().item(), rel=0.02)
    assert ours.abs().max().item() == pytest.approx(theirs.abs().max().item(), rel=0.01)

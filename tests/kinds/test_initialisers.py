"""Initial weights have the standard deviation of their rule."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from ablate.nn.model import build_model
from ablate.spec.layer import InitialiserSpec
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


@pytest.mark.independent_check("initialisers", "depth_scaled", against="the rule of GPT-2")
@pytest.mark.independent_check("initialisers", "normal", against="its standard deviation")
@pytest.mark.independent_check("initialisers", "zero_output", against="zeros in the maps that end a sub-layer")
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


@pytest.mark.independent_check("initialisers", "fan_in", against="torch `nn.Linear`")
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


@pytest.mark.parametrize(
    "mlp", ["plain", {"kind": "mixture", "experts": 3, "active": 2, "ratio": 4}], ids=["plain", "mixture"]
)
def test_biases_of_fan_in_are_those_of_torch_where_asked(mlp: Any) -> None:
    """Every bias of a map is 0, or has the range and the spread of the biases of `torch.nn.Linear`."""
    mlp = {"bias": True, **({"kind": mlp} if isinstance(mlp, str) else mlp)}
    dense = {"kind": "dense", "bias": True}
    mixer = {"kind": "attention", "query_key_bias": True, "value": dense, "output": dense}
    spec = {
        "family": "encoder",
        "depth": 1,
        "width": D,
        "heads": 4,
        "head": {"pooling": "cls", "hidden": [D]},
        "final_norm": "none",
    }

    def biases(initialiser: Any) -> dict[str, torch.Tensor]:
        block = {"mixer": mixer, "mlp": mlp, "norm": "none"}
        model = ModelSpec.model_validate(spec | {"block": block, "initialiser": initialiser})
        named = build_model(model, vocabulary=301, context=64, classes=D, seeds=[0]).named_parameters()
        return {name: values for name, values in named if name.endswith("bias") and values.numel() >= D}  # no router's

    assert not any(values.any() for values in biases("fan_in").values())
    drawn = biases({"kind": "fan_in", "biases": "uniform"})
    parts = ("query", "key", "value", "output", "up", "down", "head.layers.0", "head.layers.1")
    assert all(any(part in name for name in drawn) for part in parts)
    for name, values in drawn.items():
        inputs = 4 * D if "down" in name else D
        theirs = torch.nn.Linear(inputs, 10_000).bias
        assert values.std().item() == pytest.approx(theirs.std().item(), rel=0.2), name
        assert values.abs().max().item() == pytest.approx(theirs.abs().max().item(), rel=0.1), name

"""μP and CompleteP: initial values, rates and logits are those of the tables; test_rates_transfer.py has the effect."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from random_tokens import T, V, variant

from ablate.kinds.optimizers.adam import AdamWSpec
from ablate.nn.model import build_model
from ablate.spec.layer import ParameterInfo, RateScaling
from ablate.spec.model import ModelSpec
from ablate.spec.optimizer import OptimizerSpec
from ablate.spec.variant import VariantSpec
from ablate.training.optimizer import PackOptimizer, parameter_infos

COMPLETE: dict[str, Any] = {"kind": "complete_p", "base_width": 16, "base_depth": 2}


def model_of(**parts: Any) -> ModelSpec:
    plain = {"family": "decoder", "width": 64, "depth": 8, "heads": 8, "block": "pre_ln", "init_std": 0.1, **parts}
    return ModelSpec.model_validate(plain)


def test_initial_values_are_those_of_the_table() -> None:
    """Four times as wide: hidden matrices have a quarter of the variance; tables and heads have all of it."""
    model = build_model(model_of(initialiser=COMPLETE, tied_head=False), vocabulary=301, context=64, seeds=[0])
    spread = {name: tensor.std().item() for name, tensor in model.named_parameters() if tensor.dim() == 3}
    for name in ("mixer.query", "mixer.output", "mlp.up", "mlp.down"):
        assert spread[f"blocks.3.{name}.weight"] == pytest.approx(0.1 / math.sqrt(4), rel=0.05)
    for name in ("embedding", "positions", "head"):
        assert spread[f"{name}.weight"] == pytest.approx(0.1, rel=0.05)


@pytest.mark.independent_check("initialisers", "complete_p", against="the table of arXiv:2505.01618")
@pytest.mark.independent_check("initialisers", "mup", against="the table of arXiv:2203.03466")
@pytest.mark.parametrize(
    ("initialiser", "matrix", "gain", "around"),
    [
        ({"kind": "mup", "base_width": 16}, RateScaling(lr=1 / 4), RateScaling(), RateScaling()),
        ({"kind": "mup", "base_width": 256}, RateScaling(lr=4), RateScaling(), RateScaling()),
        (
            {**COMPLETE, "base_depth": 32, "alpha": 0.5},
            RateScaling(lr=2 / 4, weight_decay=4, eps=2 / 4),
            RateScaling(lr=2, eps=2 / 4),
            RateScaling(eps=2 / 4),
        ),
        (
            {**COMPLETE, "alpha": 0.5},
            RateScaling(lr=4**-0.5 / 4, weight_decay=4, eps=4**-0.5 / 4),
            RateScaling(lr=4**-0.5, eps=4**-0.5 / 4),
            RateScaling(eps=4**-0.5 / 4),
        ),
        (COMPLETE, RateScaling(lr=1 / 4, weight_decay=4, eps=1 / 16), RateScaling(eps=1 / 16), RateScaling(eps=1 / 16)),
    ],
)
def test_rates_are_those_of_the_table(
    initialiser: Any, matrix: RateScaling, gain: RateScaling, around: RateScaling
) -> None:
    spec = model_of(initialiser=initialiser)
    model = build_model(spec, vocabulary=V, context=T, seeds=[0])
    training = variant(optimizer={"lr": 0.1, "weight_decay": 0.2, "eps": 1e-4}).training
    optimizer = PackOptimizer(model, [training], scaling=spec.rate_scaling)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    infos = {info.name: info for info in parameter_infos(model)}
    for group in optimizer.rule.param_groups:
        for parameter in group["params"]:
            info: ParameterInfo = infos[names[id(parameter)]]
            by = matrix if info.role == "matrix" else gain if info.layer is not None else around
            assert group["lr"] == pytest.approx(0.1 * by.lr), info.name
            assert group["weight_decay"] == pytest.approx(0.2 * by.weight_decay * info.decays), info.name
            assert group["eps"] == pytest.approx(1e-4 * by.eps), info.name


def test_branches_and_logits_are_scaled() -> None:
    ids = torch.arange(T).view(1, 1, T)
    scaled, plain = (
        build_model(model_of(depth=4, initialiser=initialiser), vocabulary=V, context=T, seeds=[0]).double()
        for initialiser in (COMPLETE, "normal")
    )
    plain.load_state_dict(scaled.state_dict())
    for block in plain.blocks:
        with torch.no_grad():
            block.mixer.output.weight /= 2  # twice as deep as the base
            block.mlp.down.weight /= 2
    torch.testing.assert_close(scaled(ids), plain(ids) / 4)


def test_parts_of_a_block_may_start_in_their_own_way() -> None:
    block = {
        "mixer": "attention",
        "initialiser_mixer": {"kind": "normal", "std": 0.4},
        "initialiser_mlp": "zero_output",
    }
    spec = model_of(block=block, exceptions={"last": {"initialiser_mixer": None}})
    model = build_model(spec, vocabulary=301, context=64, seeds=[0])
    spread = {name: tensor.std().item() for name, tensor in model.named_parameters()}
    assert spread["blocks.0.mixer.query.weight"] == pytest.approx(0.4, rel=0.05)
    assert spread["blocks.7.mixer.query.weight"] == pytest.approx(0.1, rel=0.05)
    assert spread["blocks.0.mlp.up.weight"] == pytest.approx(0.1, rel=0.05)
    assert spread["blocks.0.mlp.down.weight"] == 0


def test_an_optimizer_of_unknown_step_lengths_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = variant().model_dump(mode="json")
    plain["model"] = {**plain["model"], "initialiser": "mup"}
    VariantSpec.model_validate(plain)
    monkeypatch.setattr(AdamWSpec, "growth", OptimizerSpec.growth)
    with pytest.raises(ValidationError, match="this optimizer does not say how") as refused:
        VariantSpec.model_validate(plain)
    assert refused.value.errors()[0]["loc"] == ("training", "optimizer", "kind")

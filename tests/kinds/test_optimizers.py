"""Optimizers over a pack whose members have values of their own, against torch's, or equations written again, alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from ablate.nn.model.build import build_model
from ablate.nn.pack import Linear, normal
from ablate.nn.pack.initial import stream
from ablate.spec.model import ModelSpec
from ablate.spec.optimizer import OPTIMIZERS, OptimizerSpec, ParameterInfo
from ablate.spec.training import TrainingSpec
from ablate.training.optimizer import PackOptimizer
from ablate.training.parameters import parameter_infos

STEPS = 7
FREE = 1e9

MEMBERS: dict[str, list[dict[str, Any]]] = {
    "adamw": [
        {"lr": 0.1},
        {"lr": 0.03, "weight_decay": 0.5},
        {"lr": 0.1},
        {"lr": 0.2, "betas": (0.5, 0.7), "eps": 1e-2, "weight_decay": 0.1},
    ],
    "adam": [{"lr": 0.1}, {"lr": 0.03, "weight_decay": 0.5}, {"lr": 0.2, "betas": (0.5, 0.7), "eps": 1e-2}],
    "sgd": [{"lr": 0.1, "momentum": 0.5}, {"lr": 0.03, "weight_decay": 0.5}, {"lr": 0.1, "momentum": 0.5}],
    "lion": [{"lr": 0.1}, {"lr": 0.03, "weight_decay": 0.5}, {"lr": 0.02, "betas": (0.3, 0.6)}],
}


class EquationsOfLion:
    """Algorithm 2 of arXiv:2302.06675, line by line."""

    def __init__(self, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        self.groups, self.lr, self.betas = groups, lr, betas
        self.momentum = {p: torch.zeros_like(p) for group in groups for p in group["params"]}

    @torch.no_grad()
    def step(self) -> None:
        first, second = self.betas
        for group in self.groups:
            for p in group["params"]:
                c = first * self.momentum[p] + (1 - first) * p.grad
                p -= self.lr * (c.sign() + group["weight_decay"] * p)
                self.momentum[p] = second * self.momentum[p] + (1 - second) * p.grad


REFERENCES: dict[str, Callable[..., Any]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": lambda groups, momentum=0.9, **options: torch.optim.SGD(groups, momentum=momentum, **options),
    "lion": EquationsOfLion,
}


def gradients(step: int, member: int) -> tuple[Tensor, Tensor]:
    """Of weight and bias."""
    generator = stream(member, f"gradients/{step}")
    return torch.randn(5, 3, generator=generator), torch.randn(3, generator=generator)


def settings(kind: str, members: list[dict[str, Any]]) -> list[TrainingSpec]:
    plain = [{"kind": kind, "clip": FREE, **values} for values in members]
    schedule = {"kind": "constant", "warmup": 0}
    return [TrainingSpec(steps=STEPS, batch_size=1, optimizer=one, schedule=schedule) for one in plain]


def linear(members: int) -> Linear:
    model = Linear(members, 5, 3, bias=True, initial=normal(1.0))
    with torch.no_grad():
        for member in range(members):
            model.weight[member] = torch.randn(5, 3, generator=stream(member, "start"))
            model.bias[member] = torch.randn(3, generator=stream(member, "bias"))
    return model


def move(model: Linear, optimizer: PackOptimizer, step: int, members: list[int]) -> None:
    grads = [gradients(step, member) for member in members]
    model.weight.grad = torch.stack([weight for weight, _ in grads])
    model.bias.grad = torch.stack([bias for _, bias in grads])
    optimizer.set_rates(step)
    optimizer.step()


def alone(kind: str, member: int, values: dict[str, Any], steps: int = STEPS) -> tuple[Tensor, Tensor]:
    """Weight and bias of one member after some steps of the reference, which knows no packs."""
    start = linear(member + 1)
    weight, bias = nn.Parameter(start.weight[member].detach()), nn.Parameter(start.bias[member].detach())
    options = {key: value for key, value in values.items() if key != "weight_decay"}
    decay = values.get("weight_decay", 0.0)
    groups = [{"params": [weight], "weight_decay": decay}, {"params": [bias], "weight_decay": 0.0}]
    optimizer = REFERENCES[kind](groups, **options)
    for step in range(1, steps + 1):
        weight.grad, bias.grad = gradients(step, member)
        optimizer.step()
    return weight.detach(), bias.detach()


@pytest.mark.parametrize("kind", sorted(MEMBERS))
def test_every_member_moves_as_if_alone(kind: str) -> None:
    members = MEMBERS[kind]
    model = linear(len(members))
    optimizer = PackOptimizer(model, settings(kind, members))
    for step in range(1, STEPS + 1):
        move(model, optimizer, step, list(range(len(members))))
    for member, values in enumerate(members):
        weight, bias = alone(kind, member, values)
        torch.testing.assert_close(model.weight[member].detach(), weight, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(model.bias[member].detach(), bias, rtol=1e-5, atol=1e-6)


def test_there_is_a_reference_for_every_kind() -> None:
    assert set(MEMBERS) == set(REFERENCES) == set(OPTIMIZERS.members())


def test_nesterov_and_no_momentum_are_torchs() -> None:
    for values in ({"momentum": 0.6, "nesterov": True}, {"momentum": 0.0}):
        model = linear(2)
        optimizer = PackOptimizer(model, settings("sgd", [{"lr": 0.1, **values}, {"lr": 0.2, **values}]))
        for step in range(1, STEPS + 1):
            move(model, optimizer, step, [0, 1])
        for member, lr in enumerate((0.1, 0.2)):
            weight, _ = alone("sgd", member, {"lr": lr, **values})
            torch.testing.assert_close(model.weight[member].detach(), weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", sorted(MEMBERS))
def test_a_smaller_pack_and_a_restored_one_go_on(kind: str) -> None:
    members = MEMBERS[kind]
    model = linear(len(members))
    before = PackOptimizer(model, settings(kind, members))
    for step in (1, 2, 3):
        move(model, before, step, list(range(len(members))))
    kept = [2, 1]
    smaller = linear(2)
    with torch.no_grad():
        smaller.weight.copy_(model.weight[kept])
        smaller.bias.copy_(model.bias[kept])
    of_kept = settings(kind, [members[member] for member in kept])
    taken = PackOptimizer(smaller, of_kept)
    taken.take_over(before, torch.tensor(kept))
    restored = PackOptimizer(smaller, of_kept)
    restored.restore(taken.state())
    for step in range(4, STEPS + 1):
        move(smaller, restored, step, kept)
    for place, member in enumerate(kept):
        weight, bias = alone(kind, member, members[member])
        torch.testing.assert_close(smaller.weight[place].detach(), weight, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(smaller.bias[place].detach(), bias, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", sorted(MEMBERS))
def test_a_rate_on_the_device_is_read_at_every_step(kind: str) -> None:
    """What a captured graph asks for: `lr` is a tensor, whose value changes."""
    members = MEMBERS[kind][:2]
    spec = settings(kind, members)
    info = ParameterInfo("weight", (5, 3), "matrix", decays=True)
    model = linear(1)
    options = {**spec[0].optimizer.options(info), "lr": torch.tensor(0.0)}
    rule = spec[0].optimizer.build([{"params": [model.weight], **options}], capturable=False)
    rule.state[model.weight] = spec[0].optimizer.state(model.weight, info)
    for rate, moves in ((0.0, False), (0.1, True)):
        rule.param_groups[0]["lr"].fill_(rate)
        model.weight.grad, _ = (grad.unsqueeze(0) for grad in gradients(1, 0))
        start = model.weight.detach().clone()
        rule.step()
        assert torch.equal(model.weight, start) != moves


@pytest.mark.parametrize("kind", sorted(MEMBERS))
def test_its_state_takes_the_bytes_that_it_says(kind: str) -> None:
    for values in (MEMBERS[kind][0], {"lr": 1.0, "momentum": 0} if kind == "sgd" else MEMBERS[kind][1]):
        spec = OptimizerSpec.parse({"kind": kind, **values})
        state = spec.state(torch.zeros(1, 40, 50), ParameterInfo("weight", (40, 50), "matrix", decays=True))
        assert sum(tensor.nbytes for tensor in state.values() if tensor.dim()) == 2000 * spec.state_bytes()


def test_values_share_a_structure_and_kinds_do_not() -> None:
    def structure(**plain: Any) -> Any:
        return TrainingSpec(steps=1, batch_size=1, optimizer=plain).structure()

    assert structure(lr=1) == structure(lr=2, weight_decay=1, betas=[0, 0], eps=1, clip=3)
    sgd = structure(kind="sgd", lr=1)
    assert sgd == structure(kind="sgd", lr=2, momentum=0.1, weight_decay=1)
    apart = [structure(lr=1), structure(kind="adam", lr=1), sgd, structure(kind="sgd", lr=1, momentum=0),
             structure(kind="sgd", lr=1, nesterov=True), structure(kind="lion", lr=1)]  # fmt: skip
    assert all(apart.count(one) == 1 for one in apart)


def test_nesterov_without_momentum_is_refused() -> None:
    with pytest.raises(ValidationError, match="needs a `momentum` above 0"):
        OptimizerSpec.parse({"kind": "sgd", "lr": 1, "momentum": 0, "nesterov": True})


def test_parameters_are_known_by_role_block_and_shape() -> None:
    spec = ModelSpec.model_validate(
        {"family": "decoder", "width": 12, "depth": 2, "heads": 3, "block": "pre_ln", "tied_head": False}
    )
    model = build_model(spec, vocabulary=17, context=9, seeds=[0, 1])
    infos = {info.name: info for info in parameter_infos(model)}
    assert list(infos) == [name for name, _ in model.named_parameters()]
    assert infos["embedding.weight"] == ParameterInfo("embedding.weight", (17, 12), "embedding", True)
    assert infos["positions.weight"] == ParameterInfo("positions.weight", (9, 12), "embedding", True)
    assert infos["head.weight"] == ParameterInfo("head.weight", (12, 17), "head", True)
    assert infos["blocks.1.mlp.up.weight"] == ParameterInfo("blocks.1.mlp.up.weight", (12, 48), "matrix", True, 1)
    norms = [info for name, info in infos.items() if "norm" in name]
    assert len(norms) >= 5
    assert all(info.role == "gain" and not info.decays for info in norms)
    assert {info.layer for name, info in infos.items() if name.startswith("blocks.")} == {0, 1}

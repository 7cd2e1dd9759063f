"""Optimizers over a pack whose members have values of their own, against torch's, or equations written again, alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from ablate import extras
from ablate.errors import MissingPackageError
from ablate.kinds.mixers.linformer import Reduction
from ablate.kinds.optimizers.muon import adjustment
from ablate.nn.model import build_model
from ablate.nn.pack import Linear, Packed, initialise, normal
from ablate.nn.pack.initial import stream
from ablate.spec.layer import ParameterInfo
from ablate.spec.model import ModelSpec
from ablate.spec.optimizer import OPTIMIZERS, OptimizerSpec
from ablate.spec.training import TrainingSpec
from ablate.spec.variant import VariantSpec
from ablate.training.members import pack_key
from ablate.training.optimizer import PackOptimizer, parameter_infos

STEPS = 7
FREE = 1e9
FROM_THE_POST = (3.4445, -4.775, 2.0315)
"""Coefficients of Muon's iterations, https://kellerjordan.github.io/posts/muon/."""

MEMBERS: dict[str, list[dict[str, Any]]] = {
    "adamw": [
        {"lr": 0.1},
        {"lr": 0.03, "weight_decay": 0.5},
        {"lr": 0.1},
        {"lr": 0.2, "betas": (0.5, 0.7), "eps": 1e-2, "weight_decay": 0.1},
    ],
    "adam": [{"lr": 0.1}, {"lr": 0.03, "weight_decay": 0.5}, {"lr": 0.2, "betas": (0.5, 0.7), "eps": 1e-2}],
    "sgd": [{"lr": 0.1, "momentum": 0.5}, {"lr": 0.03, "weight_decay": 0.5}, {"lr": 0.1, "momentum": 0.5}],
    "muon": [
        {"lr": 0.1},
        {"lr": 0.03, "weight_decay": 0.5, "adamw": {"lr": 0.02, "betas": (0.5, 0.7), "eps": 1e-2}},
        {"lr": 0.1},
        {"lr": 0.1, "momentum": 0.5},
    ],
    "lion": [{"lr": 0.1}, {"lr": 0.03, "weight_decay": 0.5}, {"lr": 0.02, "betas": (0.3, 0.6)}],
    "ademamix": [
        {"lr": 0.1},
        {"lr": 0.03, "weight_decay": 0.5, "slow_warmup": 5, "slow_beta": 0.99},
        {"lr": 0.2, "betas": (0.5, 0.7), "eps": 1e-2, "alpha": 8, "slow_warmup": 20},
    ],
    "soap": [{"lr": 0.1, "weight_decay": 0.5, "betas": (0.5, 0.7), "eps": 1e-2, "frequency": 2}],  # takes no pack
}
SHARED: list[tuple[str, dict[str, Any]]] = [
    ("sgd", {"momentum": 0.6, "nesterov": True}),
    ("sgd", {"momentum": 0.0}),
    # NorMuon (arXiv:2510.05491) as in `dion/normuon.py` of microsoft/dion, cautious decay (arXiv:2510.12402) as in
    # `dion/muon.py`, and coefficients for each iteration as in levanter's `zeropower_via_newtonschulz5`.
    ("muon", {"output_beta": 0.9}),
    ("muon", {"cautious": True}),
    ("muon", {"output_beta": 0.5, "cautious": True, "adjust": "match_rms_adamw", "nesterov": False}),
    ("muon", {"ns_steps": 2, "ns_coefficients": ((4.08, -6.89, 2.93), (3.95, -6.3, 2.64))}),
]
PACKS = [
    *MEMBERS.items(),
    *((kind, [{"lr": 0.1, "weight_decay": 2.0, **one}, {"lr": 0.03, **one}]) for kind, one in SHARED),
]


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


class EquationsOfAdEMAMix:
    """Algorithm 1 of arXiv:2409.03137 and `pytorch/ademamix.py` of apple/ml-ademamix, number by number."""

    def __init__(
        self, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        slow_beta: float = 0.9999, alpha: float = 2.0, slow_warmup: int = 0,
    ) -> None:  # fmt: skip
        self.groups, self.lr, self.betas, self.eps, self.t = groups, lr, betas, eps, 0
        self.beta, self.alpha, self.warmup = slow_beta, alpha, slow_warmup
        self.kept = {p: [torch.zeros_like(p) for _ in range(3)] for group in groups for p in group["params"]}

    @torch.no_grad()
    def step(self) -> None:
        self.t += 1
        (first, second), alpha, third = self.betas, self.alpha, self.beta
        if self.t < self.warmup:
            share = self.t / self.warmup
            alpha *= share
            # Steps until an average has halved; the authors' code adds 1e-8 to β.
            half = [-math.log(2) / math.log(beta + 1e-8) for beta in (first, third)]
            third = 0.5 ** (1 / ((1 - share) * half[0] + share * half[1]))
        for group in self.groups:
            for p in group["params"]:
                rates = (1 - first, 1 - third, 1 - second)
                new = (p.grad, p.grad, p.grad**2)
                self.kept[p] = [a + r * (n - a) for a, r, n in zip(self.kept[p], rates, new, strict=True)]
                fast, slow, square = self.kept[p]
                fast, square = fast / (1 - first**self.t), square / (1 - second**self.t)
                p -= self.lr * ((fast + alpha * slow) / (square.sqrt() + self.eps) + group["weight_decay"] * p)


class EquationsOfSoap:
    """Algorithm 3 of arXiv:2409.11321 for the weight, line by line; Adam for the bias, which starts as late."""

    def __init__(
        self, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float, frequency: int
    ) -> None:
        (self.weight,), (self.bias,) = (group["params"] for group in groups)
        self.decay, self.lr, self.betas, self.eps = groups[0]["weight_decay"], lr, betas, eps
        self.frequency, self.t = frequency, -1
        self.sides = [torch.zeros(side, side) for side in self.weight.shape]
        self.moments = {p: (torch.zeros_like(p), torch.zeros_like(p)) for p in (self.weight, self.bias)}

    @torch.no_grad()
    def step(self) -> None:
        G, (_, beta) = self.weight.grad, self.betas
        self.t += 1
        if self.t:
            L, R = self.bases
            self.move(self.weight, lambda x: L.T @ x @ R, lambda x: L @ x @ R.T)
            self.weight *= 1 - self.lr * self.decay
            self.move(self.bias, lambda x: x, lambda x: x)
        self.sides = [beta * S + (1 - beta) * new for S, new in zip(self.sides, (G @ G.T, G.T @ G), strict=True)]
        if self.t == 0:
            self.bases = [torch.linalg.eigh(S).eigenvectors.flip(1) for S in self.sides]
        elif self.t % self.frequency == 0:
            for axis, (S, Q) in enumerate(zip(self.sides, self.bases, strict=True)):
                order = torch.diag(Q.T @ S @ Q).argsort(descending=True)
                m, v = self.moments[self.weight]
                self.moments[self.weight] = m, v.index_select(axis, order)
                self.bases[axis] = torch.linalg.qr(S @ Q[:, order]).Q

    def move(self, p: Tensor, turn: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]) -> None:
        (first, second), (m, v) = self.betas, self.moments[p]
        m, v = first * m + (1 - first) * p.grad, second * v + (1 - second) * turn(p.grad).square()
        self.moments[p] = m, v
        # ε is added before the correction of the start at 0, as in the authors' code.
        scale = (1 - second**self.t) ** 0.5 / (1 - first**self.t)
        p -= self.lr * scale * back(turn(m) / (v.sqrt() + self.eps))


class EquationsOfMuon:
    """arXiv:2502.16982, eqs 1 to 4, for the weight [in, out], in float64; torch.optim.AdamW for the bias.

    The iterations keep the singular vectors and take each singular value σ to aσ + bσ³ + cσ⁵.

    Args:
        groups: Weight and bias, with their decays.
        adamw: What moves the bias.
        others: Settings of `muon`.
    """

    def __init__(
        self, groups: list[dict[str, Any]], lr: float, momentum: float = 0.95, nesterov: bool = True,
        adjust: str = "original", ns_steps: int = 5, ns_coefficients: Any = FROM_THE_POST,
        adamw: dict[str, Any] | None = None, output_beta: float | None = None, cautious: bool = False,
    ) -> None:  # fmt: skip
        self.beta, self.cautious = output_beta, cautious
        self.moment = torch.zeros(groups[0]["params"][0].shape[1], dtype=torch.float64)
        (self.weight,), (self.bias,) = (group["params"] for group in groups)
        self.lr, self.decay, self.share, self.nesterov = lr, groups[0]["weight_decay"], momentum, nesterov
        inputs, outputs = self.weight.shape
        self.factor = {
            "original": max(1.0, outputs / inputs) ** 0.5,
            "match_rms_adamw": 0.2 * max(inputs, outputs) ** 0.5,
            "none": 1.0,
        }[adjust]
        self.iterations = ns_coefficients if len(ns_coefficients) != 3 else (ns_coefficients,) * ns_steps
        self.momentum = torch.zeros_like(self.weight, dtype=torch.float64)
        rest: dict[str, Any] = {"lr": 3e-4, "betas": (0.9, 0.95), **(adamw or {})}
        self.adamw = torch.optim.AdamW([self.bias], weight_decay=0.0, **rest)

    @torch.no_grad()
    def step(self) -> None:
        gradient, share = self.weight.grad.double(), self.share
        self.momentum = share * self.momentum + (1 - share) * gradient
        update = (1 - share) * gradient + share * self.momentum if self.nesterov else self.momentum
        left, values, right = torch.linalg.svd(update, full_matrices=False)
        values = values / values.norm()
        for a, b, c in self.iterations:
            values = a * values + b * values**3 + c * values**5
        update = (left * values) @ right
        if self.beta is not None:  # arXiv:2510.05491, Algorithm 1, for the transposed matrix
            self.moment = self.beta * self.moment + (1 - self.beta) * update.square().mean(0)
            even = update / (self.moment.sqrt() + 1e-8)
            update = even * update.norm() / even.norm()
        shrinks = (torch.sign(self.weight * update) + 1).clamp(max=1) if self.cautious else 1.0
        decayed = self.weight - self.lr * self.decay * self.weight * shrinks
        self.weight.copy_(decayed - self.lr * self.factor * update)
        self.adamw.step()


REFERENCES: dict[str, Callable[..., Any]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": lambda groups, momentum=0.9, **options: torch.optim.SGD(groups, momentum=momentum, **options),
    "lion": EquationsOfLion,
    "ademamix": EquationsOfAdEMAMix,
    "soap": EquationsOfSoap,
    "muon": EquationsOfMuon,
}


def gradients(step: int, member: int) -> tuple[Tensor, Tensor]:
    """Of weight and bias."""
    generator = stream(member, f"gradients/{step}")
    return torch.randn(5, 3, generator=generator).double(), torch.randn(3, generator=generator).double()


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
    return model.double()


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


@pytest.mark.independent_check("optimizers", "adam", against="torch `optim.Adam`")
@pytest.mark.independent_check("optimizers", "ademamix", against="arXiv:2409.03137, Algorithm 1, number by number")
@pytest.mark.independent_check("optimizers", "adamw", against="torch `optim.AdamW`")
@pytest.mark.independent_check("optimizers", "lion", against="arXiv:2302.06675, Algorithm 2, line by line")
@pytest.mark.independent_check("optimizers", "muon", against="torch `optim.Muon`")
@pytest.mark.independent_check("optimizers", "sgd", against="torch `optim.SGD`")
@pytest.mark.independent_check(
    "optimizers", "soap", against="arXiv:2409.11321, Algorithm 3, line by line; the code is the package's"
)
@pytest.mark.parametrize(("kind", "members"), PACKS, ids=str)
def test_every_member_is_updated_as_if_alone(kind: str, members: list[dict[str, Any]]) -> None:
    model = linear(len(members))
    optimizer = PackOptimizer(model, settings(kind, members))
    for step in range(1, STEPS + 1):
        move(model, optimizer, step, list(range(len(members))))
    for member, values in enumerate(members):
        exact = 1e-5 if kind == "soap" else 1e-12  # the package computes eigenvectors in single precision
        for ours, theirs in zip((model.weight, model.bias), alone(kind, member, values), strict=True):
            torch.testing.assert_close(ours[member].detach(), theirs, rtol=exact, atol=exact)


@torch.no_grad()
def sphere_step(start: Tensor, after: Tensor, lr: float) -> Tensor:
    """What `levanter.optim.muonh` and `adamh` make of a step from `start` to `after`, for one matrix."""
    update = start - after
    ahead = start - lr * update * start.norm() / update.norm()
    return ahead * start.norm() / ahead.norm()


@pytest.mark.parametrize("kind", ["adamw", "lion", "muon", "sgd", "soap"])
def test_a_step_on_the_sphere_is_that_of_marin(kind: str) -> None:
    """W̃ = W - η·u·‖W‖/‖u‖, W ← W̃·‖W‖/‖W̃‖ of every matrix of every member, with u of the optimizer itself."""
    rates, exact = ([0.1], 1e-5) if kind == "soap" else ([0.1, 0.02], 1e-12)
    members = [{"lr": rate, "hyperball": True} for rate in rates]
    model = linear(len(rates))
    norms = torch.linalg.matrix_norm(model.weight.detach())
    optimizer = PackOptimizer(model, settings(kind, members))
    plain = [linear(member + 1) for member in range(len(rates))]
    starts = [(nn.Parameter(one.weight[m].detach()), nn.Parameter(one.bias[m].detach())) for m, one in enumerate(plain)]
    options = {"betas": (0.95, 0.95), "eps": 1e-8, "frequency": 10} if kind == "soap" else {}
    references = [
        REFERENCES[kind](
            [{"params": [w], "weight_decay": 0.0}, {"params": [b], "weight_decay": 0.0}], lr=rate, **options
        )
        for (w, b), rate in zip(starts, rates, strict=True)
    ]
    for step in range(1, STEPS + 1):
        move(model, optimizer, step, list(range(len(rates))))
        for member, ((weight, bias), rate) in enumerate(zip(starts, rates, strict=True)):
            weight.grad, bias.grad = gradients(step, member)
            before = weight.detach().clone()
            references[member].step()
            if not torch.equal(weight, before):  # the first step of SOAP moves nothing
                weight.data.copy_(sphere_step(before, weight.detach(), rate))
            torch.testing.assert_close(model.weight[member].detach(), weight.detach(), rtol=exact, atol=exact)
            torch.testing.assert_close(model.bias[member].detach(), bias.detach(), rtol=exact, atol=exact)
    torch.testing.assert_close(torch.linalg.matrix_norm(model.weight.detach()), norms)


def test_what_starts_at_zero_has_no_sphere_and_each_expert_its_own() -> None:
    expert = {"kind": "mixture", "experts": 3, "ratio": 0.5}
    plain = {"family": "decoder", "width": 12, "depth": 1, "heads": 3, "tied_head": False, "positions": "none",
             "block": {"mixer": {"kind": "attention", "query_init": "zero"}, "mlp": expert}}  # fmt: skip
    model = build_model(ModelSpec.model_validate(plain), vocabulary=17, context=9, seeds=[0])
    made = PackOptimizer(model, settings("adamw", [{"lr": 0.1, "hyperball": True}]))
    start = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for step in (1, 2):
        for name, parameter in model.named_parameters():
            parameter.grad = torch.randn(parameter.shape, generator=stream(step, name))
        made.set_rates(step)
        made.step()
    for name, parameter in model.named_parameters():
        assert not torch.equal(parameter, start[name]), name
        kept = parameter.dim() > 2 and name not in ("embedding.weight", "blocks.0.mixer.query.weight")
        before, after = (torch.linalg.matrix_norm(value) for value in (start[name], parameter.detach()))
        assert torch.allclose(before, after, rtol=1e-5) == kept, name


def test_a_sphere_and_a_decay_are_refused() -> None:
    for values in ({"weight_decay": 0.1}, {"kind": "muon", "adamw": {"weight_decay": 0.1}}):
        with pytest.raises(ValidationError, match="its norm is to stay"):
            OptimizerSpec.parse({"kind": "adamw", "lr": 1, "hyperball": True, **values})


def test_there_is_a_reference_for_every_kind() -> None:
    assert set(MEMBERS) == set(REFERENCES) == set(OPTIMIZERS.members())


@pytest.mark.parametrize(
    "settings_of_muon",
    [
        {},
        {"nesterov": False},
        {"ns_steps": 3, "ns_coefficients": (2.0, -1.5, 0.5)},
        {"adjust": "match_rms_adamw", "weight_decay": 0.1},
    ],
)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5)])
def test_settings_of_muon_are_torchs(settings_of_muon: dict[str, Any], shape: tuple[int, int]) -> None:
    """Torch's has bfloat16 alone, with 8 bits: a step of length 0.1 an entry at most is good to some thousandths."""
    values = {"lr": 0.1, **settings_of_muon}
    exact, rounded = (Linear(2, *shape, initial=normal(1.0)) for _ in range(2))
    for model in (exact, rounded):
        initialise(model, [0, 1])
    theirs = [nn.Parameter(exact.weight[member].detach().T.contiguous()) for member in (0, 1)]  # [out, in]
    equations = [nn.Parameter(exact.weight[member].detach().clone()) for member in (0, 1)]
    given = {"weight_decay": 0.0, **values}
    decay, rule = given["weight_decay"], given.pop("adjust", "original")
    of_torch = torch.optim.Muon(theirs, adjust_lr_fn=rule, **given)
    bias = {"params": [nn.Parameter(torch.zeros(1))]}
    given = {**{key: value for key, value in given.items() if key != "weight_decay"}, "adjust": rule}
    in_order = [EquationsOfMuon([{"params": [one], "weight_decay": decay}, bias], **given) for one in equations]
    ours = PackOptimizer(exact, settings("muon", [values, values]))
    ours_rounded = PackOptimizer(rounded, settings("muon", [{**values, "ns_precision": "bf16"}] * 2))
    steps = 3
    for step in range(1, steps + 1):
        gradient = torch.randn(2, *shape, generator=stream(0, f"{step}"))
        exact.weight.grad, rounded.weight.grad = gradient.clone(), gradient.clone()
        for member in (0, 1):
            equations[member].grad, theirs[member].grad = gradient[member], gradient[member].T.contiguous()
            in_order[member].step()
        of_torch.step()
        for optimizer in (ours, ours_rounded):
            optimizer.set_rates(step)
            optimizer.step()
    for member in (0, 1):
        weight = equations[member].detach()
        torch.testing.assert_close(exact.weight[member].detach(), weight, rtol=1e-5, atol=1e-5)
        for other in (rounded.weight[member].detach(), theirs[member].detach().T):
            torch.testing.assert_close(other, weight, rtol=0, atol=5e-3 * steps)


@pytest.mark.parametrize(
    ("given", "where", "message"),
    [
        ([[1, 2, 3]], ("ns_coefficients",), "each of the 5 iterations"),
        ([[1, 2, 3], [4, 5]], ("ns_coefficients", 1, 2), "required"),
        ([1, 2, "a"], ("ns_coefficients", 2), "valid number"),
    ],
)
def test_coefficients_that_are_neither_three_nor_three_of_each_iteration(given: Any, where: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message) as caught:
        OptimizerSpec.parse({"kind": "muon", "lr": 0.1, "ns_coefficients": given})
    assert [error["loc"] for error in caught.value.errors()] == [where]


def test_every_matrix_of_a_stack_is_orthogonalised_alone() -> None:
    stack = torch.randn(2, 4, 5, 3, generator=stream(0, "stack"))
    parameter, alone_ones = (
        nn.Parameter(torch.zeros_like(stack)),
        [nn.Parameter(torch.zeros(1, 5, 3)) for _ in range(8)],
    )
    for group, gradient in (([parameter], [stack]), (alone_ones, list(stack.reshape(8, 1, 5, 3)))):
        rule = OptimizerSpec.parse({"kind": "muon", "lr": 0.1}).build(
            [{"params": group, "lr": 0.1, "weight_decay": 0.0, "momentum": 0.95}], capturable=False
        )
        for one, gradient_of_one in zip(group, gradient, strict=True):
            one.grad = gradient_of_one
            rule.state[one] = {"momentum_buffer": torch.zeros_like(one)}
        rule.step()
    torch.testing.assert_close(parameter.detach().reshape(8, 5, 3), torch.cat([one.detach() for one in alone_ones]))
    values = torch.linalg.svdvals(parameter.detach()) / 0.1
    assert values.min() > 0.5
    assert values.max() < 1.3  # the quintic leaves singular values between 0.7 and 1.2


class Turned(Packed):
    """One map, stored as [out, in] or as [in, out]."""

    def __init__(self, outputs_first: bool) -> None:
        super().__init__(1)
        self.declare(
            "weight", (7, 3) if outputs_first else (3, 7), normal(1.0), decay=True, outputs_first=outputs_first
        )


@pytest.mark.parametrize("adjust", ["original", "match_rms_adamw"])
def test_a_map_with_its_outputs_first_moves_as_its_transpose(adjust: str) -> None:
    """Linformer's E is [rank, length]: its outputs are rows, by which NorMuon norms and Muon scales."""
    both = [Turned(True), Turned(False)]
    optimizers = [
        PackOptimizer(one, settings("muon", [{"lr": 0.1, "output_beta": 0.5, "adjust": adjust}])) for one in both
    ]
    for step in range(1, STEPS + 1):
        gradient = torch.randn(1, 7, 3, generator=stream(step, "turned"))
        for one, optimizer, given in zip(both, optimizers, (gradient, gradient.mT), strict=True):
            one.weight.grad = given
            optimizer.set_rates(step)
            optimizer.step()
    torch.testing.assert_close(both[0].weight, both[1].weight.mT)
    assert parameter_infos(Reduction(1, 1, rank=4, length=9))[0].outputs_first


NOTHING = {"mixer": "fnet", "mlp": "none", "skips": {"mlp": 0}}


@pytest.mark.parametrize(
    ("block", "exceptions"),
    [
        ({"mixer": "fnet", "mlp": "plain"}, {}),
        ({"mixer": "attention", "mlp": "none", "skips": {"mlp": 0}}, {}),
        ({"mixer": "attention", "mlp": "plain"}, {}),
        (NOTHING, {"first": {"mixer": "attention"}}),
        (NOTHING, {"last": {"mixer": "attention"}}),
    ],
    ids=["in the MLP", "in the mixer", "in both", "in the first layer", "in the last layer"],
)
def test_muon_takes_a_model_with_hidden_matrices_anywhere(block: dict[str, Any], exceptions: dict[str, Any]) -> None:
    plain = {"family": "encoder", "width": 8, "depth": 2, "heads": 2, "block": block, "exceptions": exceptions}
    OptimizerSpec.parse({"kind": "muon", "lr": 1}).check_model(ModelSpec.model_validate(plain))


def rates_of(optimizer: dict[str, Any]) -> dict[str, float]:
    """The rate of every parameter of a small model, by name."""
    spec = ModelSpec.model_validate(
        {"family": "decoder", "width": 12, "depth": 2, "heads": 3, "block": "pre_ln", "tied_head": False}
    )
    model = build_model(spec, vocabulary=17, context=9, seeds=[0])
    constant = {"kind": "constant", "warmup": 0}
    made = PackOptimizer(model, [TrainingSpec(steps=1, batch_size=1, optimizer=optimizer, schedule=constant)])
    made.set_rates(1)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(p)]: group["lr"] for group in made.rule.param_groups for p in group["params"]}


def test_groups_have_rates_of_their_own() -> None:
    rates = rates_of({"lr": 0.1, "rates": {"embedding": 3, "head": 0.5, "gain": 2}})
    assert rates["embedding.weight"] == rates["positions.weight"] == pytest.approx(0.3)
    assert rates["head.weight"] == pytest.approx(0.05)
    assert rates["norm.weight"] == rates["blocks.0.norm_mlp.weight"] == pytest.approx(0.2)
    assert rates["blocks.1.mlp.up.weight"] == pytest.approx(0.1)
    muon = rates_of({"kind": "muon", "lr": 0.1, "adamw": {"lr": 0.01}, "rates": {"embedding": 3}})
    assert muon["embedding.weight"] == pytest.approx(0.03)
    assert muon["head.weight"] == muon["norm.weight"] == pytest.approx(0.01)
    assert muon["blocks.1.mlp.up.weight"] == pytest.approx(0.1)


def test_rates_fall_from_the_head_to_the_embedding() -> None:
    """Each level has a share of the rate of the level above: head and norm, block 1, block 0, embedding."""
    rates = rates_of({"lr": 1.0, "rates": {"layer_decay": 0.5}})
    assert rates["head.weight"] == rates["norm.weight"] == 1
    assert {rate for name, rate in rates.items() if name.startswith("blocks.1.")} == {0.5}
    assert {rate for name, rate in rates.items() if name.startswith("blocks.0.")} == {0.25}
    assert rates["embedding.weight"] == rates["positions.weight"] == 0.125


@pytest.mark.parametrize("kind", sorted(MEMBERS))
def test_a_smaller_pack_and_a_restored_one_continue(kind: str) -> None:
    members = MEMBERS[kind]
    model = linear(len(members))
    before = PackOptimizer(model, settings(kind, members))
    for step in (1, 2, 3):
        move(model, before, step, list(range(len(members))))
    kept = [2, 1] if len(members) > 1 else [0]
    smaller = linear(len(kept))
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
    for rate, moves in ((0.0, False), (0.1, True)):  # the first step of SOAP moves nothing at any rate
        rule.param_groups[0]["lr"].fill_(rate)
        model.weight.grad, _ = (grad.unsqueeze(0) for grad in gradients(1, 0))
        start = model.weight.detach().clone()
        rule.step()
        assert torch.equal(model.weight, start) != moves


@pytest.mark.parametrize("capturable", [True, False])
def test_steps_are_captured_in_a_graph_only_if_asked(capturable: bool) -> None:
    for kind in ("adam", "adamw", "muon"):
        groups = [{"params": [nn.Parameter(torch.ones(1, 2))], "lr": torch.tensor(0.1), "weight_decay": 0.0}]
        rule = OptimizerSpec.parse({"kind": kind, "lr": 0.1}).build(groups, capturable=capturable)
        assert getattr(rule, "_rest", rule).defaults["capturable"] is capturable, kind


@pytest.mark.parametrize("kind", sorted(MEMBERS))
def test_parameters_without_a_gradient_stay_and_stop_no_others(kind: str) -> None:
    """Alone in a group before the others, and beside another in its group."""
    spec, info = settings(kind, MEMBERS[kind][:1])[0].optimizer, ParameterInfo("weight", (5, 3), "matrix", decays=True)
    still, moved, beside, last = parameters = [nn.Parameter(torch.ones(1, 5, 3)) for _ in range(4)]
    groups = [{"params": group, **spec.options(info), "lr": 0.1} for group in ([still], [moved, beside], [last])]
    rule = spec.build(groups, capturable=False)
    rule.state.update({parameter: spec.state(parameter, info) for parameter in parameters})
    for step in (1, 2):  # the first step of SOAP moves nothing
        for parameter in (moved, last):
            parameter.grad = gradients(step, 0)[0].float().unsqueeze(0)
        rule.step()
    assert [bool((one != 1).any()) for one in parameters] == [False, True, False, True]


@pytest.mark.parametrize("kind", sorted(MEMBERS))
def test_its_state_takes_the_bytes_that_it_says(kind: str) -> None:
    for values in (MEMBERS[kind][0], {"lr": 1.0, "momentum": 0} if kind == "sgd" else MEMBERS[kind][-1]):
        spec = OptimizerSpec.parse({"kind": kind, **values})
        state = spec.state(torch.zeros(1, 40, 50), ParameterInfo("weight", (40, 50), "matrix", decays=True))
        least = 4 if kind == "muon" else spec.state_bytes()  # what AdamW moves has two tensors
        kept = sum(tensor.nbytes for tensor in state.values() if tensor.dim())
        if kind == "soap":  # what it keeps of a matrix grows with the ratio of its sides; the bytes are an upper bound
            assert kept == 2 * 4 * (2000 + 40**2 + 50**2) <= 2000 * least
        else:
            assert kept == 2000 * least


@pytest.mark.parametrize(
    ("shape", "sides"),
    [((7,), ()), ((4, 7), (0, 1)), ((6, 25), (0,)), ((6, 24), (0, 1)), ((3, 5, 7), (0, 1, 2)), ((30, 40), (0,))],
)
def test_soap_does_not_precondition_long_sides(shape: tuple[int, ...], sides: tuple[int, ...]) -> None:
    """Vectors, sides longer than 4 times the others, and sides longer than `longest`."""
    spec = OptimizerSpec.parse({"kind": "soap", "lr": 0.1, "longest": 35})
    parameter = nn.Parameter(torch.ones(1, *shape))
    info = ParameterInfo("weight", shape, "matrix", decays=True)
    state = spec.state(parameter, info)
    assert {name for name in state if name.startswith("Q")} == {f"Q{axis}" for axis in sides}
    assert sum(tensor.nbytes for tensor in state.values() if tensor.dim()) <= spec.state_bytes() * parameter.numel()
    rule = spec.build([{"params": [parameter], **spec.options(info)}], capturable=False)
    rule.state[parameter] = state
    for step in range(3):
        parameter.grad = torch.randn(1, *shape, generator=stream(step, "gradient"))
        rule.step()
    for axis in sides:
        torch.testing.assert_close(state[f"Q{axis}"][0].T @ state[f"Q{axis}"][0], torch.eye(shape[axis]))
    assert parameter.isfinite().all()


def test_trials_of_an_optimizer_that_takes_no_pack_are_planned_singly() -> None:
    spec, alone_only = ({"kind": kind, "lr": 0.1} for kind in ("adamw", "soap"))
    plain = {"task": "recall", "model": {"family": "decoder", "width": 4, "heads": 1, "depth": 1, "block": "pre_ln"}}
    keys = [
        pack_key(VariantSpec.model_validate({**plain, "training": {"steps": 1, "batch_size": 1, "optimizer": one}}), "")
        for one in (spec, alone_only)
    ]
    assert keys[0] is not None
    assert keys[1] is None
    with pytest.raises(ValueError, match="a pack of one"):
        PackOptimizer(linear(2), settings("soap", MEMBERS["soap"] * 2))


def test_an_optimizer_whose_package_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.PACKAGES, "soap", ("a_package_that_is_not_there",))
    with pytest.raises(MissingPackageError, match=r"(?s)training.optimizer.kind.*the optimizer `soap` needs.*\[soap\]"):
        PackOptimizer(linear(1), settings("soap", MEMBERS["soap"]))


def test_values_share_a_structure_and_kinds_do_not() -> None:
    def structure(**plain: Any) -> Any:
        return TrainingSpec(steps=1, batch_size=1, optimizer=plain).structure()

    assert structure(lr=1) == structure(lr=2, weight_decay=1, betas=[0, 0], eps=1, clip=3)
    sgd = structure(kind="sgd", lr=1)
    assert sgd == structure(kind="sgd", lr=2, momentum=0.1, weight_decay=1)
    apart = [structure(lr=1), structure(kind="adam", lr=1), sgd, structure(kind="sgd", lr=1, momentum=0),
             structure(kind="sgd", lr=1, nesterov=True), structure(kind="lion", lr=1)]  # fmt: skip
    assert all(apart.count(one) == 1 for one in apart)


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


def test_rates_follow_the_tables_of_the_papers() -> None:
    """By width arXiv:2203.03466, Table 8; by depth, with branches divided by its root, arXiv:2310.02244, Table 1."""
    growths = [OptimizerSpec.parse({"kind": kind, "lr": 0.1}).growth("matrix") for kind in ("sgd", "adamw")]
    assert [(growth.width, growth.depth(0.5)) for growth in growths] == [(0.0, 0.0), (-1.0, -0.5)]


@pytest.mark.parametrize(
    ("mixer", "filters"),
    [
        ("hyena", "mixer.short"),
        ("mamba2", "mixer.convolution.weight"),
        ("gated_deltanet", "mixer.key_convolution.weight"),
        ({"kind": "extractor", "type": "me", "output": True}, "mixer.weight"),  # a number for each lag
    ],
)
def test_depthwise_filters_are_no_matrices(mixer: Any, filters: str) -> None:
    """Muon leaves them to AdamW and muP does not scale their rate: their fan-in is the number of taps."""
    plain = {"family": "decoder", "depth": 1, "width": 16, "heads": 2, "block": {"mixer": mixer}, "positions": "none"}
    spec = ModelSpec.model_validate({**plain, "initialiser": {"kind": "mup", "base_width": 4}})
    infos = {info.name: info for info in parameter_infos(build_model(spec, vocabulary=17, context=9, seeds=[0]))}
    info = infos[f"blocks.0.{filters}"]
    assert (info.role, info.decays) == ("gain", True)
    assert spec.rate_scaling(info, OptimizerSpec.parse({"kind": "adamw", "lr": 0.1}).growth(info.role)).lr == 1.0
    muon = OptimizerSpec.parse({"kind": "muon", "lr": 0.1})
    assert "momentum_buffer" not in muon.state(torch.zeros(1, *info.shape), info)
    assert "momentum_buffer" in muon.state(torch.zeros(1, 4, 4), infos["blocks.0.mixer.output.weight"])


@pytest.mark.parametrize(("rule", "wide", "tall"), [("original", 1.0, 2.0), ("none", 1.0, 1.0)])
def test_the_rate_of_a_matrix_follows_its_shape_as_torchs_muon_has_it(rule: Any, wide: float, tall: float) -> None:
    assert (adjustment(rule, 32, 8), adjustment(rule, 8, 32)) == (wide, tall)
    assert adjustment("match_rms_adamw", 8, 32) == pytest.approx(0.2 * 32**0.5)

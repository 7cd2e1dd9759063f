"""The contracts of an optimizer, tried over packs of a small model, and of a schedule. Shapes: K pack, D width."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ablate.contracts.contract import Contract, by_name, round_trips_through_json
from ablate.nn.pack import Embedding, Gain, Linear, initialise, normal
from ablate.nn.pack.initial import stream
from ablate.spec.optimizer import OPTIMIZERS, OptimizerSpec
from ablate.spec.schedule import SCHEDULES, ScheduleSpec
from ablate.spec.training import TrainingSpec
from ablate.training.optimizer import PackOptimizer, parameter_infos

_TOLERANCE = 1e-4
_STEPS = 6
_MANY_STEPS = 200
_SEEDS = (5, 2, 11)
_RATES = (1.0, 1.0, 0.3)
"""Of the members of a pack, as shares of the optimizer's own: two share a parameter group, one has its own."""


@dataclass(frozen=True, slots=True)
class OptimizerContext:
    """The size of the model that is moved.

    Attributes:
        width: D.
    """

    width: int


class _Model(nn.Module):
    """A parameter of each role."""

    def __init__(self, width: int, seeds: Sequence[int]) -> None:
        super().__init__()
        pack = len(seeds)
        self.embedding = Embedding(pack, 11, width, initial=normal(1.0))
        self.blocks = nn.ModuleList([Linear(pack, width, 5, bias=True, initial=normal(1.0))])
        self.gain = Gain(pack, 1.0, trainable=True)
        self.head = Linear(pack, 5, 3, initial=normal(1.0))
        initialise(self, seeds)

    def values(self) -> Tensor:
        """All parameters of each member, [K, parameters]."""
        return torch.cat([p.detach().reshape(len(p), -1) for p in self.parameters()], 1)

    def give_gradients(self, seeds: Sequence[int], step: int) -> None:
        """Random gradients that depend on seed, parameter and step alone."""
        for name, parameter in self.named_parameters():
            shape = parameter.shape[1:]
            parameter.grad = torch.stack([torch.randn(shape, generator=stream(s, f"{name}/{step}")) for s in seeds])


def _optimizer(specs: Sequence[OptimizerSpec], model: nn.Module) -> PackOptimizer:
    constant = ScheduleSpec.parse({"kind": "constant", "warmup": 0})
    return PackOptimizer(model, [TrainingSpec(steps=_MANY_STEPS, batch_size=1, optimizer=spec, schedule=constant)
                                 for spec in specs])  # fmt: skip


def _members(spec: OptimizerSpec) -> tuple[list[OptimizerSpec], tuple[int, ...]]:
    """The members of the largest pack that is tried, with their seeds: one, if the optimizer takes no more."""
    count = len(_SEEDS) if spec.pack_aware else 1
    return [spec.model_copy(update={"lr": spec.lr * share}) for share in _RATES[:count]], _SEEDS[:count]


def _move(model: _Model, optimizer: PackOptimizer, seeds: Sequence[int], steps: Sequence[int]) -> None:
    for step in steps:
        model.give_gradients(seeds, step)
        optimizer.set_rates(step)
        optimizer.step()


def _alone(spec: OptimizerSpec, seed: int, width: int, steps: Sequence[int]) -> Tensor:
    model = _Model(width, [seed])
    _move(model, _optimizer([spec], model), [seed], steps)
    return model.values()[0]


def isolates_pack_members(spec: OptimizerSpec, context: OptimizerContext) -> Iterator[str]:
    """A pack of three members, one with another rate, equals three packs of one member each.

    An optimizer that is not `pack_aware` has one member, and gives the same twice.
    """
    (specs, seeds), steps = _members(spec), range(1, _STEPS + 1)
    model = _Model(context.width, seeds)
    _move(model, _optimizer(specs, model), seeds, steps)
    for member, (one, seed) in enumerate(zip(specs, seeds, strict=True)):
        gap = (model.values()[member] - _alone(one, seed, context.width, steps)).abs().max().item()
        if not gap <= _TOLERANCE:
            yield f"member {member} of a pack of {len(specs)} is {gap:.2g} off the same seed alone"


def continues_in_smaller_packs(spec: OptimizerSpec, context: OptimizerContext) -> Iterator[str]:
    """Its state can be cut to some members, saved and restored without changing their updates."""
    (specs, all_seeds), half = _members(spec), _STEPS // 2
    before = _Model(context.width, all_seeds)
    optimizer = _optimizer(specs, before)
    _move(before, optimizer, all_seeds, range(1, half + 1))
    kept = [2, 0] if spec.pack_aware else [0]
    seeds = [all_seeds[member] for member in kept]
    after = _Model(context.width, seeds)
    with torch.no_grad():
        for ours, theirs in zip(after.parameters(), before.parameters(), strict=True):
            ours.copy_(theirs[kept])
    taken, restored = (_optimizer([specs[member] for member in kept], after) for _ in range(2))
    taken.take_over(optimizer, torch.tensor(kept))
    restored.restore(taken.state())
    _move(after, restored, seeds, range(half + 1, _STEPS + 1))
    for index, member in enumerate(kept):
        alone = _alone(specs[member], all_seeds[member], context.width, range(1, _STEPS + 1))
        gap = (after.values()[index] - alone).abs().max().item()
        if not gap <= _TOLERANCE:
            yield f"a member that continued in a smaller pack is {gap:.2g} off one that was never interrupted"


def updates_parameters_with_gradients(spec: OptimizerSpec, context: OptimizerContext) -> Iterator[str]:
    """Every parameter with a gradient moves and stays finite; one without stays where it is."""
    model = _Model(context.width, [0])
    start = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = _optimizer([spec], model)
    for step in (1, 2):
        model.give_gradients([0], step)
        model.gain.value.grad = None
        optimizer.set_rates(step)
        optimizer.step()
    for (name, parameter), before in zip(model.named_parameters(), start, strict=True):
        if not parameter.isfinite().all():
            yield f"{name} is not finite after two steps"
        elif torch.equal(parameter, before) != (name == "gain.value"):
            yield f"{name} moved without a gradient" if name == "gain.value" else f"{name} did not move"


def applies_the_rate_of_each_step(spec: OptimizerSpec, context: OptimizerContext) -> Iterator[str]:
    """At rate 0 nothing moves, whether the rate is a number or, as on a GPU, a tensor whose value changes."""
    for form in ("a number", "a tensor"):
        model = _Model(context.width, [0])
        optimizer = _optimizer([spec], model)
        for group in optimizer.rule.param_groups:
            group["lr"] = torch.tensor(0.0) if form == "a tensor" else 0.0
        model.give_gradients([0], 1)
        before = model.values()
        optimizer.step()
        if not torch.equal(model.values(), before):
            yield f"a rate of 0, given as {form}, moved a parameter"
        optimizer.set_rates(2)
        model.give_gradients([0], 2)
        optimizer.step()
        if torch.equal(model.values(), before):
            yield f"a rate that was raised, given as {form}, moved nothing"


def finds_a_minimum(spec: OptimizerSpec, context: OptimizerContext) -> Iterator[str]:
    """On f(θ) = Σ (θ - 1)² / 2 it ends lower than it began."""
    model = _Model(context.width, [0])
    optimizer = _optimizer([spec], model)
    begin = (model.values() - 1).square().sum().item()
    for step in range(1, _MANY_STEPS + 1):
        for parameter in model.parameters():
            parameter.grad = parameter.detach() - 1
        optimizer.set_rates(step)
        optimizer.step()
    end = (model.values() - 1).square().sum().item()
    if not end < begin:
        yield f"after {_MANY_STEPS} steps a loss of {begin:.3g} is {end:.3g}"


def declares_state_bytes(spec: OptimizerSpec, context: OptimizerContext) -> Iterator[str]:
    """`state_bytes` is no less than what `state` keeps for each parameter; a single number, a step, does not count."""
    model = _Model(context.width, [0])
    for parameter, info in zip(model.parameters(), parameter_infos(model), strict=True):
        kept = sum(tensor.nbytes for tensor in spec.state(parameter, info).values() if tensor.numel() > 1)
        if kept > spec.state_bytes() * parameter.numel():
            yield f"it keeps {kept / parameter.numel():g} bytes a parameter, `state_bytes` says {spec.state_bytes()}"
            return


def declares_value_fields(spec: OptimizerSpec, context: OptimizerContext) -> Iterator[str]:
    """`value_fields` names fields of the spec, `lr` and `clip` among them."""
    unknown = sorted(spec.value_fields - set(type(spec).model_fields))
    if unknown:
        yield f"`value_fields` names {', '.join(f'`{name}`' for name in unknown)}, and there is no such field"
    if missing := sorted({"lr", "clip"} - spec.value_fields):
        yield f"`value_fields` lacks {', '.join(f'`{name}`' for name in missing)}"


OPTIMIZER: Contract[OptimizerSpec, OptimizerContext] = Contract(
    family=OPTIMIZERS,
    rules=by_name(
        isolates_pack_members,
        continues_in_smaller_packs,
        updates_parameters_with_gradients,
        applies_the_rate_of_each_step,
        finds_a_minimum,
        declares_state_bytes,
        declares_value_fields,
        round_trips_through_json,
    ),
    contexts=lambda spec: [OptimizerContext(width) for width in (7, 1)],
    describe=lambda context: f"width {context.width}",
    given={"lr": 0.01},
)


@dataclass(frozen=True, slots=True)
class ScheduleContext:
    """The length of a training run."""

    steps: int


def _factors(spec: ScheduleSpec, context: ScheduleContext) -> list[float]:
    return [spec.factor(step, context.steps) for step in range(1, context.steps + 1)]


def stays_within_the_peak(spec: ScheduleSpec, context: ScheduleContext) -> Iterator[str]:
    """Every factor is a number from 0 to 1."""
    for step, factor in enumerate(_factors(spec, context), 1):
        if not (isinstance(factor, (int, float)) and math.isfinite(factor) and 0 <= factor <= 1 + 1e-9):
            yield f"the factor at step {step} is {factor!r}"
            return


def has_a_nonzero_rate(spec: ScheduleSpec, context: ScheduleContext) -> Iterator[str]:
    """Some step has a rate above 0, also in a training run of one step."""
    if not any(factor > 0 for factor in _factors(spec, context)):
        yield "every factor is 0"


def is_a_function_of_the_step(spec: ScheduleSpec, context: ScheduleContext) -> Iterator[str]:
    """The factor depends on the step alone, so that training can resume at any step."""
    backwards = [spec.factor(step, context.steps) for step in range(context.steps, 0, -1)]
    if backwards[::-1] != _factors(spec, context):
        yield "the factors depend on the order in which they are asked for"


SCHEDULE: Contract[ScheduleSpec, ScheduleContext] = Contract(
    family=SCHEDULES,
    rules=by_name(stays_within_the_peak, has_a_nonzero_rate, is_a_function_of_the_step, round_trips_through_json),
    contexts=lambda spec: [ScheduleContext(steps) for steps in (1, 2, 7, 100, 1000)],
    describe=lambda context: f"{context.steps} steps",
)

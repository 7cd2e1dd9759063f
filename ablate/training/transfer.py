"""Whether settings that were tuned at one size hold at others: the coordinate check, and the loss by learning rate.

The coordinate check of Tensor Programs V (arXiv:2203.03466, appendix D.1) trains a model for a few steps at several
widths and depths. In a parametrisation that transfers, what layers compute changes as much at any size. Then the
best learning rate is the same at any size as well, which training at several rates shows.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import JsonValue
from torch import Tensor, nn

from ablate.errors import SpaceError
from ablate.nn.model.block import Block
from ablate.spec.space import SpaceSpec
from ablate.spec.space_fields import ObjectiveSpec
from ablate.spec.task import Task
from ablate.spec.variant import VariantSpec
from ablate.training.events import Measurement
from ablate.training.loop import train
from ablate.training.members import Member
from ablate.training.pack import Pack

Dimension = Literal["width", "depth"]
STEPS = 10
"""Steps of the coordinate check."""
LIMITS: Mapping[Dimension, float] = {"width": 0.3, "depth": 0.5}
"""The largest exponents that pass. At twice the width, changes are within a factor of 1.23. Along the depth, a sum of
changes that are independent from layer to layer gives -1/2."""
_LAYERS = ("mixer", "mlp")
_TIMES = (1, 2, 4)
_ROWS = 8
"""Examples of the validation batch."""

Resized = Mapping[tuple[Dimension, int], VariantSpec]
"""By dimension and size, the variant of that size; all else is that of the space."""


@dataclass(frozen=True, slots=True)
class Coordinate:
    """The output of one part of the model along one dimension.

    Attributes:
        dimension: Which size is changed.
        part: `mixer` and `mlp`: outputs of the sub-layers, root mean square over the blocks; `stream`: output of the
            last block; `logits`.
        values: At each size, the root mean square of its entries after each step from 0 to `STEPS`.
        changes: The same of its change since step 0.
    """

    dimension: Dimension
    part: str
    sizes: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]
    changes: tuple[tuple[float, ...], ...]

    @property
    def exponent(self) -> float:
        """x of size^x, the growth of the change after the last step; NaN if a change is 0 or not finite."""
        last = [change[-1] for change in self.changes]
        if not all(0 < value < math.inf for value in last):
            return math.nan
        logs = [math.log(size) for size in self.sizes]
        return statistics.linear_regression(logs, [math.log(value) for value in last]).slope

    @property
    def passes(self) -> bool:
        """Whether the change does not depend on the size. Smaller logits at larger sizes are as they should be."""
        return abs(self.exponent) <= LIMITS[self.dimension]


@dataclass(frozen=True, slots=True)
class RateCurve:
    """The objective by learning rate at one size.

    Attributes:
        dimension: Which size is changed.
        losses: By factor of the rates of the space, the mean over seeds; infinite where a seed diverged.
    """

    dimension: Dimension
    size: int
    losses: Mapping[float, float]

    @property
    def best(self) -> float:
        """The factor with the lowest loss."""
        return min(self.losses, key=self.losses.__getitem__)

    @property
    def at_edge(self) -> bool:
        """Whether the best factor is the smallest or the largest one, so that a better one may lie outside."""
        return self.best in (min(self.losses), max(self.losses))


def resize(space: SpaceSpec, dimension: Dimension, size: int) -> VariantSpec:
    """The baseline of a space with another width, at which heads are as wide as before, or another depth.

    Raises:
        SpaceError: It is not valid at this size.
    """
    values: dict[str, JsonValue] = {f"model.{dimension}": size}
    if dimension == "width":
        model = space.resolve({}).model
        values["model.heads"] = max(1, round(model.heads * size / model.width))
    return space.resolve({}, values)


def sizes_of(space: SpaceSpec, widths: Sequence[float], depths: Sequence[float]) -> Resized:
    """The baseline of a space at several widths and depths.

    Args:
        widths: The widths; if neither these nor depths are given, once, twice and four times that of the space.
        depths: The depths; if neither are given and rates are scaled by depth, once, twice and four times the space's.

    Raises:
        SpaceError: The baseline is not valid at one of these sizes, or ablate does not build it.
    """
    baseline = space.resolve({})
    if not baseline.builds_model:
        raise SpaceError("sizes are changed of models that ablate builds, and here a trainer does", where=space.name)
    model = baseline.model
    if not widths and not depths:
        widths = [model.width * times for times in _TIMES]
        depths = [model.depth * times for times in _TIMES] if model.initialiser.scales_depth else []
    wanted: list[tuple[Dimension, int]] = [("width", int(size)) for size in widths]
    wanted += [("depth", int(size)) for size in depths]
    return {(dimension, size): resize(space, dimension, size) for dimension, size in wanted}


def with_rates(variant: VariantSpec, factor: float, steps: int | None = None) -> VariantSpec:
    """The variant with all its learning rates multiplied by a factor, and another number of steps."""
    plain = variant.model_dump(mode="json")
    training = plain["training"]
    training["optimizer"] = _multiply_rates(training["optimizer"], factor)
    training["evaluations"] = 1
    training["steps"] = steps or training["steps"]
    return VariantSpec.model_validate(plain)


def _multiply_rates(plain: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """Plain data of an optimizer with every `lr` multiplied, nested ones included."""
    return {
        name: value * factor if name == "lr" else _multiply_rates(value, factor) if isinstance(value, dict) else value
        for name, value in plain.items()
    }


def check_coordinates(variants: Resized, task: Task, device: str, seeds: Sequence[int]) -> list[Coordinate]:
    """Train each size for `STEPS` steps and observe the outputs of its parts on one validation batch.

    Args:
        seeds: Of initial values and batches; the outputs are root mean squares over them.
    """
    observed = {key: _observe(variant, task, device, seeds) for key, variant in variants.items()}
    found = []
    for dimension in dict.fromkeys(dimension for dimension, _ in variants):
        sizes = sorted(size for of, size in variants if of == dimension)
        at = [observed[dimension, size] for size in sizes]
        # With CompleteP a single sub-layer adds less the more of them there are, so that only their sum is compared.
        parts = at[0] if dimension == "width" else [part for part in at[0] if part not in _LAYERS]
        found += [
            Coordinate(
                dimension,
                part,
                tuple(sizes),
                tuple(tuple(_root(step[0]) for step in of_size[part]) for of_size in at),
                tuple(tuple(_root(step[1]) for step in of_size[part]) for of_size in at),
            )
            for part in parts
        ]
    return found


def _root(squares: Sequence[float]) -> float:
    return math.sqrt(statistics.fmean(squares))


_Squares = dict[str, list[tuple[list[float], list[float]]]]
"""By part, for each step: mean squares of outputs and of changes, one for each layer of the part and seed."""


def _observe(variant: VariantSpec, task: Task, device: str, seeds: Sequence[int]) -> _Squares:
    """The parts of one size after each step from 0 to `STEPS`."""
    squares: _Squares = defaultdict(lambda: [([], []) for _ in range(STEPS + 1)])
    plain = variant.model_dump(mode="json")
    plain["training"] |= {"schedule": {"kind": "constant", "warmup": 0}}
    constant = VariantSpec.model_validate(plain)
    for seed in seeds:  # not packed: kinds that cannot be packed are observed as well
        with Pack([Member(constant, seed)], task, torch.device(device)) as pack:
            first: dict[str, list[Tensor]] = {}
            for step in range(STEPS + 1):
                if step:
                    pack.step(step)
                outputs = _outputs(pack)
                first = first or outputs
                for part, tensors in outputs.items():
                    for now, before in zip(tensors, first[part], strict=True):
                        squares[part][step][0].append(float(now.square().mean()))
                        squares[part][step][1].append(float((now - before).square().mean()))
    return squares


@torch.no_grad()
def _outputs(pack: Pack) -> dict[str, list[Tensor]]:
    """What the parts of a model compute for the first validation batch."""
    blocks: list[nn.Module] = [module for module in pack.model.modules() if isinstance(module, Block)]
    modules: dict[str, list[nn.Module]] = {
        **{name: [getattr(block, name) for block in blocks if hasattr(block, name)] for name in _LAYERS},
        "stream": blocks[-1:],
        "logits": [pack.model],
    }
    outputs: dict[str, list[Tensor]] = {name: [] for name, of in modules.items() if of}
    with _record_outputs({module: outputs[name] for name, of in modules.items() for module in of}):
        pack.model.eval()
        pack.outputs_of_validation(_ROWS)
        pack.model.train()
    return {name: tensors for name, tensors in outputs.items() if tensors}


@contextmanager
def _record_outputs(to: Mapping[nn.Module, list[Tensor]]) -> Iterator[None]:
    """Within it the outputs of modules are added to lists, in the order of the calls."""

    def keep(tensors: list[Tensor]) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, given: Any, made: Any) -> None:
            tensors.append((made if isinstance(made, Tensor) else made[0]).float())

        return hook

    hooks = [module.register_forward_hook(keep(tensors)) for module, tensors in to.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def measure_rates(
    variants: Resized,
    task: Task,
    device: str,
    *,
    factors: Sequence[float],
    seeds: Sequence[int],
    steps: int | None,
    objective: ObjectiveSpec,
) -> Iterator[RateCurve]:
    """Train each size at several learning rates and measure the objective at the end.

    Args:
        seeds: Of initial values and batches.
        steps: Steps of training; None: those of the space.
        objective: What is measured at the end; the loss is its negative if larger values are better.
    """
    sign = 1 if objective.direction == "minimize" else -1
    for (dimension, size), variant in variants.items():
        members = [Member(with_rates(variant, factor, steps), seed) for factor in factors for seed in seeds]
        packs = [members] if variant.model.fusable and variant.training.optimizer.pack_aware else [[m] for m in members]
        values: list[float] = []
        for pack in packs:
            last: Sequence[float | None] = [None] * len(pack)
            for event in train(pack, task, torch.device(device)):
                if isinstance(event, Measurement):
                    last = event.metrics[objective.metric]
            values += [math.inf if value is None else sign * value for value in last]
        by_factor = [values[at : at + len(seeds)] for at in range(0, len(values), len(seeds))]
        means = (statistics.fmean(group) if all(map(math.isfinite, group)) else math.inf for group in by_factor)
        yield RateCurve(dimension, size, dict(zip(factors, means, strict=True)))


def grid_steps_apart(curves: Sequence[RateCurve]) -> int:
    """By how many steps of the grid the best rate of the sizes differs, at most."""
    grid = sorted(curves[0].losses)
    places = [grid.index(curve.best) for curve in curves]
    return max(places) - min(places)

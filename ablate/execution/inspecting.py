"""Measure a model before any training, as `ablate inspect` shows it: a named model, or a variant of a space."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from ablate.errors import EngineError, SpaceError
from ablate.machine import available_memory
from ablate.nn.model import build_model
from ablate.nn.model.pricing import price
from ablate.planning.planner import Planner, make_plan
from ablate.spec.lookup import find_model
from ablate.spec.space import SpaceSpec
from ablate.spec.task import Say
from ablate.training.activations import Insides, loss_on_random_tokens, loss_on_validation, measure_insides
from ablate.training.members import Member, assemble

_CPU = torch.device("cpu")
_USUAL_CONTEXT = 128
_BYTES = 4
_COPIES = 3
"""Of the weights at most at once: while they are drawn, and for the passes."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """What was measured.

    Attributes:
        name: Of the model, or of the space and its variant.
    """

    name: str
    on: str
    seeds: tuple[int, ...]
    insides: Insides


def inspect_model(name: str, context: int | None, seeds: int) -> Inspected:
    """Measure a named model on random tokens.

    Raises:
        SpaceError: There is no such model, or it reads more than one sequence.
        EngineError: The memory does not suffice.
    """
    found = find_model(name)
    spec, vocabulary = found.spec, found.named.vocabulary
    if spec.family not in ("decoder", "encoder") or spec.head is not None:
        raise SpaceError(
            "only a model that predicts a token at each position can be inspected without a task",
            where=name,
            got=f"a model of family {spec.family}",
            remedy="Name a space that trains it.",
        )
    length = context or min(_USUAL_CONTEXT, found.named.context)
    _check_memory(name, price(spec, context=length, vocabulary=vocabulary).total.parameters, seeds)
    numbers = tuple(range(seeds))
    model = build_model(spec, vocabulary=vocabulary, context=length, seeds=numbers)
    insides = measure_insides(model, loss_on_random_tokens(vocabulary, length, _CPU, seeds))
    return Inspected(found.name, f"random sequences of {length:,} tokens", numbers, insides)


def inspect_space(space: SpaceSpec, variant: str | None, seeds: int, cache: Path, say: Say) -> Inspected:
    """Measure a variant of a space on its first validation windows, with random weights.

    Raises:
        SpaceError: The design trains no such variant.
        AblateError: The baseline is invalid, or the data cannot be prepared.
        EngineError: The memory does not suffice.
    """
    planner = Planner(space, cache, say)
    planned = {found.name: found for found in make_plan(planner).variants}
    name = variant or "baseline"
    if name not in planned:
        raise SpaceError("the design trains no such variant", where="--variant", expected=", ".join(planned), got=name)
    spec = planned[name].spec
    _check_memory(name, planned[name].cost.parameters, seeds)
    task = planner.costs.prepare(spec)
    numbers = tuple(range(seeds))
    model = assemble([Member(spec, seed) for seed in numbers], task.shape)
    return Inspected(
        f"{space.name}/{name}",
        f"validation windows of {task.shape.context:,} tokens",
        numbers,
        measure_insides(model, loss_on_validation(task, _CPU, seeds)),
    )


def _check_memory(name: str, parameters: int, seeds: int) -> None:
    needed, free = _COPIES * _BYTES * parameters * seeds, available_memory()
    if needed > free:
        raise EngineError(
            f"the weights need {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free",
            where=name,
            remedy="Name fewer --seeds, or a smaller model.",
        )

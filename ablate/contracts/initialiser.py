"""The contract of an initialiser: rules, each a function that tries it and says what it found wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import torch
from torch import Tensor

from ablate.contracts.contract import Contract, by_name, round_trips_through_json
from ablate.contracts.modules import describe, layer_contexts
from ablate.nn.pack.initial import stream
from ablate.spec.initialiser import INITIALISERS, InitialiserSpec, Role
from ablate.spec.layer import LayerContext

_OUTPUTS = 11


def contexts(spec: InitialiserSpec) -> list[LayerContext]:
    """Layers of awkward sizes."""
    return layer_contexts()


def fills_the_weight(spec: InitialiserSpec, context: LayerContext) -> Iterator[str]:
    """Every value of a weight is set to a finite number, for every role, and the shape stays."""
    for role in get_args(Role):
        values = _values(spec, context, role, seed=0)
        if values.shape != (context.width, _OUTPUTS):
            yield f"role `{role}`: {(context.width, _OUTPUTS)} became {tuple(values.shape)}"
        if not values.isfinite().all():
            yield f"role `{role}`: some values are left out, or are not finite"


def depends_on_the_seed_alone(spec: InitialiserSpec, context: LayerContext) -> Iterator[str]:
    """Equal seeds give equal values, whatever the state of torch's global random generator."""
    for role in get_args(Role):
        torch.manual_seed(1)
        first = _values(spec, context, role, seed=0)
        torch.manual_seed(2)
        if not torch.equal(first, _values(spec, context, role, seed=0)):
            yield f"role `{role}`: the same seed gave other values"


def builds_without_values(spec: InitialiserSpec, context: LayerContext) -> Iterator[str]:
    """Asked on the device `meta`, where plans build models, it draws what it draws elsewhere."""
    for role in get_args(Role):
        with torch.device("meta"):
            draw = spec.initial(role, context.width, _OUTPUTS, context)
        values = torch.full((context.width, _OUTPUTS), torch.nan)
        draw(values, stream(0, "weight", values.shape))
        if not torch.equal(values, _values(spec, context, role, seed=0)):
            yield f"role `{role}`: what it draws depends on the device on which it was asked"


def _values(spec: InitialiserSpec, context: LayerContext, role: Role, seed: int) -> Tensor:
    values = torch.full((context.width, _OUTPUTS), torch.nan)
    return spec.initial(role, context.width, _OUTPUTS, context)(values, stream(seed, "weight", values.shape))


CONTRACT: Contract[InitialiserSpec, LayerContext] = Contract(
    family=INITIALISERS,
    rules=by_name(fills_the_weight, depends_on_the_seed_alone, builds_without_values, round_trips_through_json),
    contexts=contexts,
    describe=describe,
)

"""The contract of a norm: rules, each a function that tries it and says what it found wrong.

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import nn

from ablate.contracts.contract import Contract, by_name, round_trips_through_json
from ablate.contracts.modules import (
    SEEDS,
    SIZES,
    describe,
    differs_without_values,
    layer_contexts,
    miscounted,
    mixed_tokens,
    noise,
    shaken,
    unequal_members,
    without_gradient,
    wrong_in_bfloat16,
)
from ablate.spec.layer import LayerContext
from ablate.spec.norm import NORMS, NormSpec

_LARGE = 1e12


def contexts(spec: NormSpec) -> list[LayerContext]:
    """Layers of awkward sizes."""
    return layer_contexts()


def keeps_shape(spec: NormSpec, context: LayerContext) -> Iterator[str]:
    """[K, ..., D] keeps its shape, with any number of axes between."""
    norm = _norm(spec, context, [0])
    for between in ((), (2, context.context), (2, 3, context.context)):
        x = noise("input", 1, *between, context.width)
        y = norm(x)
        if y.shape != x.shape:
            yield f"{tuple(x.shape)} became {tuple(y.shape)}"


def stays_finite(spec: NormSpec, context: LayerContext) -> Iterator[str]:
    """Zeros, equal numbers and large numbers give finite outputs and gradients."""
    norm = _norm(spec, context, [0])
    row = noise("input", 1, 1, 1, context.width)
    for name, x in (("zeros", row * 0), ("equal numbers", row * 0 + 3), ("large numbers", row * _LARGE)):
        x = x.requires_grad_()
        y = norm(x)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        if not y.isfinite().all() or not gradient.isfinite().all():
            yield f"{name} give an output or a gradient that is not finite"


def norms_each_vector_alone(spec: NormSpec, context: LayerContext) -> Iterator[str]:
    """Changing one token moves the output at no other."""
    yield from mixed_tokens(_norm(spec, context, [0]), context)


def has_gradients(spec: NormSpec, context: LayerContext) -> Iterator[str]:
    """Every trainable parameter, and the input, gets a finite gradient."""
    norm = _norm(spec, context, [0])
    x = noise("input", 1, 2, context.context, context.width).requires_grad_()
    yield from without_gradient(norm, x, norm(x))


def works_in_bfloat16(spec: NormSpec, context: LayerContext) -> Iterator[str]:
    """Under bfloat16 products it gives what single precision gives, within rounding, with finite gradients."""
    if context.context == SIZES[0][2]:  # rounding does not depend on the size
        yield from wrong_in_bfloat16(_norm(spec, context, [0]), noise("input", 1, 2, context.context, context.width))


def builds_without_values(spec: NormSpec, context: LayerContext) -> Iterator[str]:
    """On the device `meta`, where plans build models, it has the same tensors: it reads no values while it is built."""
    yield from differs_without_values(lambda: spec.build(context.pack, context.width))


def counts_parameters(spec: NormSpec, context: LayerContext) -> Iterator[str]:
    """`cost` counts the trainable parameters that the module has."""
    yield from miscounted(_norm(spec, context, [0]), spec.cost(context.width, context.context).parameters)


def isolates_pack_members(spec: NormSpec, context: LayerContext) -> Iterator[str]:
    """A pack of three gives, member by member, what three packs of one with the same seeds give."""
    x = noise("input", 3, 2, context.context, context.width)
    packed = _norm(spec, context, SEEDS)(x)
    yield from unequal_members(packed, lambda at, seed: _norm(spec, context, [seed])(x[at : at + 1])[0])


def _norm(spec: NormSpec, context: LayerContext, seeds: Sequence[int]) -> nn.Module:
    return shaken(spec.build(len(seeds), context.width), seeds)


CONTRACT: Contract[NormSpec, LayerContext] = Contract(
    family=NORMS,
    rules=by_name(
        keeps_shape,
        stays_finite,
        norms_each_vector_alone,
        has_gradients,
        works_in_bfloat16,
        builds_without_values,
        counts_parameters,
        round_trips_through_json,
        isolates_pack_members,
    ),
    contexts=contexts,
    describe=describe,
)

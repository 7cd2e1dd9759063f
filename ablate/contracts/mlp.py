"""The contract of an MLP: rules, each a function that tries it and says what it found wrong.

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic import ValidationError
from torch import nn

from ablate.contracts.contract import Contract, by_name, round_trips_through_json
from ablate.contracts.modules import (
    SEEDS,
    SIZES,
    describe,
    differs_without_values,
    given_shared,
    layer_contexts,
    miscounted,
    mixed_tokens,
    noise,
    shaken,
    unequal_members,
    without_gradient,
    wrong_in_bfloat16,
)
from ablate.nn.model.block import build_part
from ablate.spec.layer import LayerContext
from ablate.spec.mlp import MLPS, MLPSpec


def contexts(spec: MLPSpec) -> list[LayerContext]:
    """Layers of awkward sizes that the MLP does not refuse."""
    return [context for context in layer_contexts() if _takes(spec, context)]


def keeps_shape(spec: MLPSpec, context: LayerContext) -> Iterator[str]:
    """[K, B, T, D] goes to [K, B, T, D], and finite numbers to finite ones."""
    x = noise("input", 1, 2, context.context, context.width)
    y = _mlp(spec, context, [0])(x)
    if y.shape != x.shape:
        yield f"{tuple(x.shape)} became {tuple(y.shape)}"
    if not y.isfinite().all():
        yield "a finite input gave an output that is not finite"


def maps_each_token_alone(spec: MLPSpec, context: LayerContext) -> Iterator[str]:
    """Changing one token moves the output at no other; the mixer alone mixes tokens, and decoding relies on it."""
    yield from mixed_tokens(_mlp(spec, context, [0]), context)


def has_gradients(spec: MLPSpec, context: LayerContext) -> Iterator[str]:
    """Every trainable parameter, and the input, gets a finite gradient."""
    mlp = _mlp(spec, context, [0])
    x = noise("input", 1, 2, context.context, context.width).requires_grad_()
    yield from without_gradient(mlp, x, mlp(x))


def works_in_bfloat16(spec: MLPSpec, context: LayerContext) -> Iterator[str]:
    """Under bfloat16 products it gives what single precision gives, within rounding, with finite gradients."""
    if context.context == SIZES[0][2]:  # rounding does not depend on the size
        yield from wrong_in_bfloat16(_mlp(spec, context, [0]), noise("input", 1, 2, context.context, context.width))


def builds_without_values(spec: MLPSpec, context: LayerContext) -> Iterator[str]:
    """On the device `meta`, where plans build models, it has the same tensors: it reads no values while it is built."""
    yield from differs_without_values(lambda: build_part(spec, context))


def counts_parameters(spec: MLPSpec, context: LayerContext) -> Iterator[str]:
    """`cost` counts the trainable parameters that the module has."""
    yield from miscounted(_mlp(spec, context, [0]), spec.cost(context, context.context).parameters)


def isolates_pack_members(spec: MLPSpec, context: LayerContext) -> Iterator[str]:
    """A pack of three gives, member by member, what three packs of one with the same seeds give."""
    if not spec.pack_aware:
        return
    x = noise("input", 3, 2, context.context, context.width)
    packed = _mlp(spec, replace(context, pack=3), SEEDS)(x)
    yield from unequal_members(packed, lambda at, seed: _mlp(spec, context, [seed])(x[at : at + 1])[0])


def _takes(spec: MLPSpec, context: LayerContext) -> bool:
    try:
        spec.check(context)
    except ValidationError:
        return False
    return True


def _mlp(spec: MLPSpec, context: LayerContext, seeds: Sequence[int]) -> nn.Module:
    return given_shared(shaken(build_part(spec, context), seeds, pack_aware=spec.pack_aware), spec, context)


CONTRACT: Contract[MLPSpec, LayerContext] = Contract(
    family=MLPS,
    rules=by_name(
        keeps_shape,
        maps_each_token_alone,
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

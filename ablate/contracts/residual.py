"""The contract of a residual: rules, each a function that tries it and says what it found wrong.

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from torch import Tensor

from ablate.contracts.contract import Contract, by_name, round_trips_through_json
from ablate.contracts.modules import (
    SEEDS,
    describe,
    differs_without_values,
    layer_contexts,
    miscounted,
    mixed_tokens,
    noise,
    shaken,
    shared_noise,
    unequal_members,
    without_gradient,
)
from ablate.nn.pack import Residual, Sublayer
from ablate.spec.layer import LayerContext
from ablate.spec.residual import RESIDUALS, ResidualSpec

_SUBLAYERS: tuple[Sublayer, ...] = ("mixer", "mlp")


def contexts(spec: ResidualSpec) -> list[LayerContext]:
    """Layers of awkward sizes."""
    return layer_contexts()


def keeps_shape(spec: ResidualSpec, context: LayerContext) -> Iterator[str]:
    """The stream has the sizes that the spec says after every step, and sub-layers read [K, B, T, D]."""
    residual, x = _residual(spec, context, [0]), noise("input", 1, 2, context.context, context.width)
    wanted = (*x.shape[:3], *spec.stream_sizes(context))
    steps = [("open", residual.open(x))]
    steps.append(("start", residual.start(steps[-1][1], *_read(spec, context, x))))
    for part in _SUBLAYERS:
        entered = residual.enter(steps[-1][1], part)
        if entered.shape != x.shape:
            yield f"the {part} is given {tuple(entered.shape)}, and should be given {tuple(x.shape)}"
            return
        steps.append(("join", residual.join(steps[-1][1], entered, lambda skipped: skipped, part)))
    for name, stream in steps:
        if tuple(stream.shape) != wanted:
            yield f"after `{name}` the stream is {tuple(stream.shape)}, and its sizes should be {wanted}"
    closed = residual.close(steps[-1][1])
    if closed.shape != x.shape:
        yield f"`close` gives {tuple(closed.shape)}, and should give {tuple(x.shape)}"


def maps_each_token_alone(spec: ResidualSpec, context: LayerContext) -> Iterator[str]:
    """Changing one token moves the output at no other; the mixer alone mixes tokens, and decoding relies on it."""
    residual = _residual(spec, context, [0])
    yield from mixed_tokens(lambda x: _layer(spec, context, residual, x), context)


def has_gradients(spec: ResidualSpec, context: LayerContext) -> Iterator[str]:
    """Every trainable parameter, and the input, gets a finite gradient."""
    residual = _residual(spec, context, [0])
    x = noise("input", 1, 2, context.context, context.width).requires_grad_()
    yield from without_gradient(residual, x, _layer(spec, context, residual, x))


def builds_without_values(spec: ResidualSpec, context: LayerContext) -> Iterator[str]:
    """On the device `meta`, where plans build models, it has the same tensors: it reads no values while it is built."""
    yield from differs_without_values(lambda: spec.build(context))


def counts_parameters(spec: ResidualSpec, context: LayerContext) -> Iterator[str]:
    """`cost` counts the trainable parameters that the module has."""
    yield from miscounted(_residual(spec, context, [0]), spec.cost(context, context.context, joins=2).parameters)


def isolates_pack_members(spec: ResidualSpec, context: LayerContext) -> Iterator[str]:
    """A pack of three gives, member by member, what three packs of one with the same seeds give."""
    three, x = replace(context, pack=3), noise("input", 3, 2, context.context, context.width)
    packed = _layer(spec, three, _residual(spec, three, SEEDS), x)

    def alone(at: int, seed: int) -> Tensor:
        return _layer(spec, context, _residual(spec, context, [seed]), x[at : at + 1])[0]

    yield from unequal_members(packed, alone)


def _residual(spec: ResidualSpec, context: LayerContext, seeds: Sequence[int]) -> Residual:
    return cast(Residual, shaken(spec.build(context), seeds))


def _layer(spec: ResidualSpec, context: LayerContext, residual: Residual, x: Tensor) -> Tensor:
    """A layer whose sub-layers are tanh, and the ends of the stream."""
    stream = residual.start(residual.open(x), *_read(spec, context, x))
    for part in _SUBLAYERS:
        stream = residual.join(stream, residual.enter(stream, part).tanh(), lambda skipped: skipped, part)
    return residual.close(stream)


def _read(spec: ResidualSpec, context: LayerContext, x: Tensor) -> tuple[tuple[Tensor, ...], ...]:
    """The argument that holds what the residual reads, if it reads anything."""
    read = shared_noise(spec, context, x)
    return (read,) if read else ()


CONTRACT: Contract[ResidualSpec, LayerContext] = Contract(
    family=RESIDUALS,
    rules=by_name(
        keeps_shape,
        maps_each_token_alone,
        has_gradients,
        builds_without_values,
        counts_parameters,
        round_trips_through_json,
        isolates_pack_members,
    ),
    contexts=contexts,
    describe=describe,
)

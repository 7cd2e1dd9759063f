"""The contract of a kind of position: rules, each a function that tries it and says what it found wrong.

Shapes: K pack, B batch, T tokens, D width, H heads, d_h head width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic import ValidationError
from torch import Tensor, nn

from ablate.contracts.contract import Contract, by_name, round_trips_through_json
from ablate.contracts.modules import (
    SEEDS,
    TOLERANCE,
    describe,
    differs_without_values,
    gap,
    layer_contexts,
    miscounted,
    noise,
    shaken,
    unequal_members,
)
from ablate.spec.layer import LayerContext
from ablate.spec.position import POSITIONS, PositionSpec


def contexts(spec: PositionSpec) -> list[LayerContext]:
    """Layers of awkward sizes, and one with heads of even width, that the positions do not refuse."""
    even = LayerContext(1, 18, 3, depth=5, context=13, causal=True, init_std=0.3, layer=4)
    return [context for context in (*layer_contexts(), even) if _takes(spec, context)]


def keeps_shape(spec: PositionSpec, context: LayerContext) -> Iterator[str]:
    """Embeddings, queries and keys keep their shape; a bias of logits broadcasts to [K, B, H, T, T]."""
    x = _input(spec, context, 1)
    y = _apply(spec, _module(spec, context, [0]), x, context.context, 0)
    wanted = (*x.shape[:-1], context.context) if spec.applied == "logits" else tuple(x.shape)
    if y is not None and tuple(y.expand(wanted).shape if spec.applied == "logits" else y.shape) != wanted:
        yield f"{wanted} is expected; got {tuple(y.shape)}"
    if y is not None and not y.isfinite().all():
        yield "finite inputs gave an output that is not finite"


def supports_incremental_decoding(spec: PositionSpec, context: LayerContext) -> Iterator[str]:
    """Tokens from position t on get what they get in the whole text: cached decoding relies on it."""
    module, x = _module(spec, context, [0]), _input(spec, context, 1)
    whole = _apply(spec, module, x, context.context, 0)
    if whole is None:
        return
    for first in range(1, context.context):
        later = _apply(spec, module, x[..., first:, :], context.context, first)
        assert later is not None
        off = gap(later, whole[..., first:, :])
        if off > TOLERANCE:
            yield f"tokens from position {first} on are {off:.2g} off what the whole text gives"
            return


def distinguishes_positions(spec: PositionSpec, context: LayerContext) -> Iterator[str]:
    """Equal tokens at two positions do not stay equal."""
    x = _input(spec, context, 1)
    y = _apply(spec, _module(spec, context, [0]), x[..., :1, :].expand(x.shape), context.context, 0)
    if y is not None and context.context > 1 and gap(y[..., :1, :], y[..., 1:2, :]) == 0:
        yield "the first two positions get the same"


def builds_without_values(spec: PositionSpec, context: LayerContext) -> Iterator[str]:
    """On the device `meta`, where plans build models, it has the same tensors: it reads no values while it is built."""
    yield from differs_without_values(lambda: spec.build(context))


def counts_parameters(spec: PositionSpec, context: LayerContext) -> Iterator[str]:
    """`cost` counts the trainable parameters that the module has."""
    cost = spec.cost(context, context.context, key_heads=context.heads, pairs=context.context**2)
    yield from miscounted(_module(spec, context, [0]), cost.parameters)


def isolates_pack_members(spec: PositionSpec, context: LayerContext) -> Iterator[str]:
    """A pack of three gives, member by member, what three packs of one with the same seeds give."""
    x = _input(spec, context, 3)
    packed = _apply(spec, _module(spec, replace(context, pack=3), SEEDS), x, context.context, 0)
    if packed is None:
        return
    packed = packed.expand(3, *x.shape[1:-1], packed.shape[-1])

    def alone(at: int, seed: int) -> Tensor:
        y = _apply(spec, _module(spec, context, [seed]), x[at : at + 1], context.context, 0)
        assert y is not None
        return y

    yield from unequal_members(packed, alone)


def _takes(spec: PositionSpec, context: LayerContext) -> bool:
    try:
        spec.check(context)
    except ValidationError:
        return False
    return True


def _module(spec: PositionSpec, context: LayerContext, seeds: Sequence[int]) -> nn.Module:
    return shaken(spec.build(context), seeds)


def _input(spec: PositionSpec, context: LayerContext, pack: int) -> Tensor:
    """Embeddings [K, B, T, D], or queries [K, B, H, T, d_h]."""
    if spec.applied == "embedding":
        return noise("input", pack, 2, context.context, context.width)
    return noise("input", pack, 2, context.heads, context.context, context.head_width)


def _apply(spec: PositionSpec, module: nn.Module, x: Tensor, length: int, first: int) -> Tensor | None:
    """What the positions make of x from position `first` on; None if they are applied nowhere."""
    if spec.applied == "nowhere":
        return None
    y: Tensor = module(x, length, first) if spec.applied == "logits" else module(x, first)
    return y


CONTRACT: Contract[PositionSpec, LayerContext] = Contract(
    family=POSITIONS,
    rules=by_name(
        keeps_shape,
        supports_incremental_decoding,
        distinguishes_positions,
        builds_without_values,
        counts_parameters,
        round_trips_through_json,
        isolates_pack_members,
    ),
    contexts=contexts,
    describe=describe,
)

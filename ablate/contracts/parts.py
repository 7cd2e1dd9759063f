"""The contracts of the parts of a layer beside its mixer: MLP, norm, positions, residual, initialiser.

Each is a list of rules, functions that try a kind and say what they found wrong.

Shapes: K pack, B batch, T tokens, D width, H heads, d_h head width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast, get_args

import torch
from torch import Tensor, nn

from ablate.contracts.contract import Contract, by_name, round_trips_through_json
from ablate.contracts.modules import (
    TOLERANCE,
    ModuleRules,
    describe,
    gap,
    given_shared,
    is_taken,
    layer_contexts,
    noise,
    shared_noise,
    token_noise,
)
from ablate.nn.model.block import build_part
from ablate.nn.pack import Residual, Sublayer
from ablate.nn.pack.initial import stream
from ablate.spec.block import RESIDUALS, ResidualSpec
from ablate.spec.layer import INITIALISERS, POSITIONS, InitialiserSpec, LayerContext, PositionSpec, Role
from ablate.spec.sublayers import MLPS, NORMS, MLPSpec, NormSpec

_LARGE = 1e12
_OUTPUTS = 11
_SUBLAYERS: tuple[Sublayer, ...] = ("mixer", "mlp")


def _any_layer(spec: NormSpec | ResidualSpec | InitialiserSpec) -> list[LayerContext]:
    return layer_contexts()


_OF_MLPS: ModuleRules[MLPSpec] = ModuleRules(
    build=lambda spec, context: given_shared(build_part(spec, context), spec, context),
    parameters=lambda spec, context: spec.cost(context, context.context).parameters,
    packs=lambda spec: spec.pack_aware,
)
MLP: Contract[MLPSpec, LayerContext] = Contract(
    family=MLPS,
    rules=by_name(
        _OF_MLPS.keeps_shape,
        _OF_MLPS.maps_each_token_alone,
        _OF_MLPS.has_gradients,
        _OF_MLPS.works_in_bfloat16,
        _OF_MLPS.reads_longer_inputs,
        _OF_MLPS.builds_without_values,
        _OF_MLPS.counts_parameters,
        round_trips_through_json,
        _OF_MLPS.isolates_pack_members,
    ),
    contexts=lambda spec: [context for context in layer_contexts() if is_taken(spec, context)],
    describe=describe,
)


def takes_any_axes(spec: NormSpec, context: LayerContext) -> Iterator[str]:
    """[K, ..., D] keeps its shape, with any number of axes between."""
    norm = _OF_NORMS.module(spec, context)
    for between in ((), (2, context.context), (2, 3, context.context)):
        x = noise("input", 1, *between, context.width)
        y = norm(x)
        if y.shape != x.shape:
            yield f"{tuple(x.shape)} became {tuple(y.shape)}"


def stays_finite(spec: NormSpec, context: LayerContext) -> Iterator[str]:
    """Zeros, equal numbers and large numbers give finite outputs and gradients."""
    norm = _OF_NORMS.module(spec, context)
    row = noise("input", 1, 1, 1, context.width)
    for name, x in (("zeros", row * 0), ("equal numbers", row * 0 + 3), ("large numbers", row * _LARGE)):
        x = x.requires_grad_()
        y = norm(x)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        if not y.isfinite().all() or not gradient.isfinite().all():
            yield f"{name} give an output or a gradient that is not finite"


_OF_NORMS: ModuleRules[NormSpec] = ModuleRules(
    build=lambda spec, context: spec.build(context.pack, context.width),
    parameters=lambda spec, context: spec.cost(context.width, context.context).parameters,
)
NORM: Contract[NormSpec, LayerContext] = Contract(
    family=NORMS,
    rules=by_name(
        takes_any_axes,
        stays_finite,
        _OF_NORMS.maps_each_token_alone,
        _OF_NORMS.has_gradients,
        _OF_NORMS.works_in_bfloat16,
        _OF_NORMS.builds_without_values,
        _OF_NORMS.counts_parameters,
        round_trips_through_json,
        _OF_NORMS.isolates_pack_members,
    ),
    contexts=_any_layer,
    describe=describe,
)


class _Applied(nn.Module):
    """The positions of a layer, applied to embeddings, to queries or keys, or to nothing; or the bias of its logits."""

    def __init__(self, spec: PositionSpec, context: LayerContext) -> None:
        super().__init__()
        self.positions = spec.build(context)
        self.applied = spec.applied
        self.length = context.context

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        """[K, B, T, D] or [K, B, H, T, d_h] from position `first` on to the same, or to a bias of [K, B, H, T, S]."""
        if self.applied == "nowhere":
            return x
        if self.applied != "logits":
            y: Tensor = self.positions(x, first)
            return y
        keys = max(self.length, first + x.shape[-2])
        bias: Tensor = self.positions(x, keys, first)
        return bias.expand(*x.shape[:-1], keys)


def _position_contexts(spec: PositionSpec) -> list[LayerContext]:
    """Layers of awkward sizes, and one with heads of even width, that the positions do not refuse."""
    even = LayerContext(1, 18, 3, depth=5, context=13, causal=True, init_std=0.3, layer=4)
    return [context for context in (*layer_contexts(), even) if is_taken(spec, context)]


def _positioned_noise(spec: PositionSpec, context: LayerContext, pack: int) -> Tensor:
    """Embeddings [K, B, T, D], or queries [K, B, H, T, d_h]."""
    if spec.applied == "embedding":
        return token_noise(spec, context, pack)
    return noise("input", pack, 2, context.heads, context.context, context.head_width)


def positions_keep_shape(spec: PositionSpec, context: LayerContext) -> Iterator[str]:
    """Embeddings, queries and keys keep their shape; a bias of logits broadcasts to [K, B, H, T, T]."""
    x = _positioned_noise(spec, context, 1)
    y = _OF_POSITIONS.module(spec, context)(x)
    wanted = (*x.shape[:-1], context.context) if spec.applied == "logits" else tuple(x.shape)
    if tuple(y.shape) != wanted:
        yield f"{wanted} is expected; got {tuple(y.shape)}"
    if not y.isfinite().all():
        yield "finite inputs gave an output that is not finite"


def supports_incremental_decoding(spec: PositionSpec, context: LayerContext) -> Iterator[str]:
    """Tokens from position t on get what they get in the whole text: cached decoding relies on it."""
    module, x = _OF_POSITIONS.module(spec, context), _positioned_noise(spec, context, 1)
    x = x[..., : spec.incremental_limit, :]
    whole = module(x)
    for first in range(1, x.shape[-2]):
        off = gap(module(x[..., first:, :], first), whole[..., first:, :])
        if off > TOLERANCE:
            yield f"tokens from position {first} on are {off:.2g} off what the whole text gives"
            return


def distinguishes_positions(spec: PositionSpec, context: LayerContext) -> Iterator[str]:
    """Equal tokens at two positions do not stay equal."""
    if spec.applied == "nowhere" or context.context == 1:
        return
    x = _positioned_noise(spec, context, 1)
    y = _OF_POSITIONS.module(spec, context)(x[..., :1, :].expand(x.shape))
    if gap(y[..., :1, :], y[..., 1:2, :]) == 0:
        yield "the first two positions get the same"


_OF_POSITIONS: ModuleRules[PositionSpec] = ModuleRules(
    build=_Applied,
    parameters=lambda spec, context: (
        spec.cost(context, context.context, key_heads=context.heads, pairs=context.context**2).parameters
    ),
    inputs=_positioned_noise,
)
POSITION: Contract[PositionSpec, LayerContext] = Contract(
    family=POSITIONS,
    rules=by_name(
        positions_keep_shape,
        supports_incremental_decoding,
        distinguishes_positions,
        _OF_POSITIONS.reads_longer_inputs,
        _OF_POSITIONS.builds_without_values,
        _OF_POSITIONS.counts_parameters,
        round_trips_through_json,
        _OF_POSITIONS.isolates_pack_members,
    ),
    contexts=_position_contexts,
    describe=describe,
)


def _residual_contexts(spec: ResidualSpec) -> list[LayerContext]:
    """Layers that the residual does not refuse; a stream that grows begins in the first one."""
    contexts = [replace(context, layer=0, depth=1) if spec.grows else context for context in layer_contexts()]
    return [context for context in contexts if is_taken(spec, context)]


class _Layer(nn.Module):
    """A layer whose sub-layers are tanh, and the ends of the stream: [K, B, T, D] to the same."""

    def __init__(self, spec: ResidualSpec, context: LayerContext) -> None:
        super().__init__()
        self.residual = cast(Residual, spec.build(context))
        self.spec = spec
        self.context = context

    def begin(self, x: Tensor) -> Tensor:
        """The stream at the beginning of the layer."""
        read = shared_noise(self.spec, self.context, x)
        return self.residual.start(self.residual.open(x), *((read,) if read else ()))

    def forward(self, x: Tensor) -> Tensor:
        """The output of the layer."""
        carried = self.begin(x)
        for part in _SUBLAYERS:
            entered = self.residual.enter(carried, part)
            branch = (entered if entered.dim() == x.dim() else entered.sum(-2)).tanh()
            carried = self.residual.join(carried, branch, lambda skipped: skipped, part)
        return self.residual.finish(carried, shared_noise(self.spec, self.context, x))


def stream_keeps_shape(spec: ResidualSpec, context: LayerContext) -> Iterator[str]:
    """The stream has the sizes that the spec says after every step, and sub-layers read [K, B, T, D]."""
    layer, x = cast(_Layer, _OF_RESIDUALS.module(spec, context)), token_noise(spec, context, 1)
    residual, wanted = layer.residual, (*x.shape[:3], *spec.stream_sizes(context))
    steps = [("open", residual.open(x)), ("start", layer.begin(x))]
    for part in _SUBLAYERS:
        entered = residual.enter(steps[-1][1], part)
        apart = part == "mixer" and spec.separates_inputs(context)
        given = (*x.shape[:3], 3, context.width) if apart else tuple(x.shape)
        if tuple(entered.shape) != given:
            yield f"the {part} is given {tuple(entered.shape)}, and should be given {given}"
            return
        steps.append(("join", residual.join(steps[-1][1], x, lambda skipped: skipped, part)))
    inside = spec.grows or spec.separates_inputs(context)
    for name, after in steps[-1:] if inside else steps:
        if tuple(after.shape) != wanted:
            yield f"after `{name}` the stream is {tuple(after.shape)}, and its sizes should be {wanted}"
    closed = residual.close(steps[-1][1])
    if closed.shape != x.shape:
        yield f"`close` gives {tuple(closed.shape)}, and should give {tuple(x.shape)}"


_OF_RESIDUALS: ModuleRules[ResidualSpec] = ModuleRules(
    build=_Layer, parameters=lambda spec, context: spec.cost(context, context.context, joins=2).parameters
)
RESIDUAL: Contract[ResidualSpec, LayerContext] = Contract(
    family=RESIDUALS,
    rules=by_name(
        stream_keeps_shape,
        _OF_RESIDUALS.maps_each_token_alone,
        _OF_RESIDUALS.has_gradients,
        _OF_RESIDUALS.works_in_bfloat16,
        _OF_RESIDUALS.reads_longer_inputs,
        _OF_RESIDUALS.builds_without_values,
        _OF_RESIDUALS.counts_parameters,
        round_trips_through_json,
        _OF_RESIDUALS.isolates_pack_members,
    ),
    contexts=_residual_contexts,
    describe=describe,
)


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


def draws_the_same_without_values(spec: InitialiserSpec, context: LayerContext) -> Iterator[str]:
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


INITIALISER: Contract[InitialiserSpec, LayerContext] = Contract(
    family=INITIALISERS,
    rules=by_name(fills_the_weight, depends_on_the_seed_alone, draws_the_same_without_values, round_trips_through_json),
    contexts=_any_layer,
    describe=describe,
)

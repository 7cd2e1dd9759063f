"""A block: mixer and MLP with their norms, skips and gains (arXiv:2311.01906, eqs 1 and 7).

Sequential: X̂ = α_SA·X + β_SA·Mixer(Norm(X)); X_out = α_FF·X̂ + β_FF·MLP(Norm(X̂)).
Parallel: X_out = α_comb·X + β_FF·MLP(Norm(X)) + β_SA·Mixer(Norm(X)), one norm shared by both branches.
With `arrangement: mlp_first` the MLP of a sequential block comes before the mixer.
With post-norm the norm is after each sum; it may also be on the output of a sub-layer (OLMo 2), or on its input and
output (sandwich). A second skip of the mixer adds X to the second sum too (SimpleTRON).

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache, partial
from typing import cast

import torch
from torch import Tensor, nn

from ablate.nn.pack import (
    AlongTokens,
    ConvolutionSlot,
    Gain,
    Residual,
    Shared,
    Sharing,
    State,
    Unpacked,
    along_tokens,
    dropout,
    step,
)
from ablate.spec.block import NO_GAIN, BlockSpec
from ablate.spec.cost import Cost, total_cost
from ablate.spec.layer import InitialiserSpec, LayerContext, SharedTensor
from ablate.spec.sublayers import MixerSpec, MLPSpec, NormSpec


def build_block(spec: BlockSpec, context: LayerContext) -> Block:
    """The module of a block; `forward(x, padding=None)` maps [K, B, T, D] to the same."""
    return ParallelBlock(spec, context) if spec.arrangement == "parallel" else SequentialBlock(spec, context)


class Block(nn.Module, ABC):
    """Base of both arrangements: the mixer, the MLP, their convolutions, the residual, four gains and dropout."""

    def __init__(self, spec: BlockSpec, context: LayerContext) -> None:
        super().__init__()
        self.spec = spec
        self.mixer = build_part(spec.mixer, with_initialiser(context, spec.initialiser_mixer))
        self.mlp = build_part(spec.mlp, with_initialiser(context, spec.initialiser_mlp)) if spec.mlp.present else None
        self.norm_mixer = spec.norms[0].build(context.pack, context.width)
        self.norm_mixer_output = _second_norm(spec.norms[0], context)
        self.norms_apart = nn.ModuleDict(
            {name: spec.norms[0].build(context.pack, context.width) for name in _further_inputs(spec, context)}
        )
        self.mixer_branch = Gain.of(spec.gains.mixer_branch, context)
        self.mixer_skip = Gain.of(spec.gains.mixer_skip, context)
        self.mlp_branch = Gain.of(spec.gains.mlp_branch, context)
        self.mlp_skip = Gain.of(spec.gains.mlp_skip, context)
        self.before_mixer = ConvolutionSlot.of(context, "before_mixer", context.width)
        self.after_mixer = ConvolutionSlot.of(context, "after_mixer", context.width)
        self.before_mlp = ConvolutionSlot.of(context, "before_mlp", context.width)
        self.after_mlp = ConvolutionSlot.of(context, "after_mlp", context.width)
        scaled = any(norm.place == "pre_scaled" for norm in spec.norms)
        self.norm_scale = 1 / math.sqrt(context.layer + 1) if scaled else 1.0
        self.residual = cast(Residual, spec.residual.build(context))
        self.carried = len(spec.channels_of_convolutions(context)) + self.residual.carries
        self.branch_scale = context.initialiser.branch_scale(context)
        self.sharing = {name: Sharing(part, context) for name, part in spec.parts}
        self.stream = SharedTensor("stream", context.layer, spec.residual.stream_sizes(context))

    def forward(self, x: Tensor, padding: Tensor | None = None, shared: Shared | None = None) -> Tensor:
        """The stream, [K, B, T, D] unless its kind has several, to the same.

        Args:
            padding: [K, B, T], True where a token is real.
            shared: The tensors that earlier layers have published; those that this layer publishes are added.
        """
        shared = {} if shared is None else shared

        def mix(y: Tensor) -> Tensor:
            mixed: Tensor = self.sharing["mixer"].call(
                self.mixer, shared, self.convolved(self.before_mixer, y), padding
            )
            return self.convolved(self.after_mixer, mixed)

        with along_tokens(AlongTokens(padding)):
            return self.around(x, mix, shared)

    def step(self, x: Tensor, position: int, state: State, shared: Shared | None = None) -> tuple[Tensor, State]:
        """One token [K, B, 1, D] through the block, and the state for the next token; as `Stepping.step`.

        The state: what residual and convolutions keep of the last tokens, then the state of the mixer.
        """
        shared = {} if shared is None else shared
        before = state[: self.carried] or (None,) * self.carried
        along, kept = AlongTokens(before=iter(before)), [state[self.carried :]]

        def mix(y: Tensor) -> Tensor:
            mixed: Tensor
            advance = partial(step, self.mixer)
            y = self.convolved(self.before_mixer, y)
            mixed, kept[0] = self.sharing["mixer"].call(advance, shared, y, position, kept[0])
            return self.convolved(self.after_mixer, mixed)

        with along_tokens(along):
            x = self.around(x, mix, shared)
        return x, (*along.kept, *kept[0])

    @abstractmethod
    def around(self, x: Tensor, mix: Callable[[Tensor], Tensor], shared: Shared) -> Tensor:
        """The block with `mix` as its mixer, the stream to the same."""

    def begin_layer(self, x: Tensor, shared: Shared) -> Tensor:
        """The stream at the start of the layer."""
        started: Tensor = self.sharing["residual"].call(self.residual.start, shared, x)
        return started

    def mlp_output(self, x: Tensor, shared: Shared) -> Tensor:
        """The output of the MLP, with dropout and without its gain."""
        assert self.mlp is not None
        made: Tensor = self.sharing["mlp"].call(self.mlp, shared, self.convolved(self.before_mlp, x))
        return self.drop(self.convolved(self.after_mlp, made))

    @staticmethod
    def convolved(convolution: nn.Module | None, x: Tensor) -> Tensor:
        """The input or output of a sub-layer, convolved if the block has a convolution there."""
        if convolution is None:
            return x
        y: Tensor = convolution(x)
        return y

    def drop(self, x: Tensor) -> Tensor:
        """Dropout of a branch, in training."""
        return dropout(x, self.spec.dropout, self.training)

    def scale_branch(self, branch: Tensor) -> Tensor:
        """A branch times the factor of the model's initialiser."""
        return branch if self.branch_scale == 1.0 else branch * self.branch_scale


class SequentialBlock(Block):
    """Mixer and MLP one after the other."""

    def __init__(self, spec: BlockSpec, context: LayerContext) -> None:
        super().__init__(spec, context)
        if self.mlp is not None:
            self.norm_mlp = spec.norms[1].build(context.pack, context.width)
            self.norm_mlp_output = _second_norm(spec.norms[1], context)

    def around(self, x: Tensor, mix: Callable[[Tensor], Tensor], shared: Shared) -> Tensor:
        x = self.begin_layer(x, shared)
        if self.mlp is None:
            return self.through_mixer(x, mix)
        if self.spec.arrangement == "mlp_first":
            return self.through_mixer(self.through_mlp(x, shared), mix)
        return self.through_mlp(self.through_mixer(x, mix), shared, again=x if self.spec.skips.mixer == 2 else None)

    def through_mixer(self, x: Tensor, mix: Callable[[Tensor], Tensor]) -> Tensor:
        """The stream through the mixer and its skip."""
        norm = self.spec.norms[0]
        entered = self.residual.enter(x, "mixer")
        y = self.drop(mix(self.normed_before(entered, norm, self.norm_mixer)))
        y = self.scale_branch(self.mixer_branch(self.on_output(y, norm, self.norm_mixer, self.norm_mixer_output)))
        if self.spec.skips.mixer > 0:
            y = self.residual.join(x, y, self.mixer_skip, "mixer")
        normed: Tensor = self.norm_mixer(y) if norm.place == "post" else y
        return normed

    def through_mlp(self, x: Tensor, shared: Shared, again: Tensor | None = None) -> Tensor:
        """The stream through the MLP and its skip, and a second skip from `again`."""
        norm = self.spec.norms[1]
        entered = self.residual.enter(x, "mlp")
        y = self.mlp_output(self.normed_before(entered, norm, self.norm_mlp), shared)
        y = self.scale_branch(self.mlp_branch(self.on_output(y, norm, self.norm_mlp, self.norm_mlp_output)))
        if self.spec.skips.mlp > 0:
            y = self.residual.join(x, y, self.mlp_skip, "mlp")
        if again is not None:
            y = y + again
        normed: Tensor = self.norm_mlp(y) if norm.place == "post" else y
        return normed

    def normed_before(self, x: Tensor, spec: NormSpec, norm: nn.Module) -> Tensor:
        """The input of a sub-layer, normalised if its norm has that place."""
        if not spec.before:
            return x
        apart = self.norms_apart.values() if norm is self.norm_mixer else ()
        normed: Tensor = norm(x) if not apart else _each_normed((norm, *apart), x)
        return normed * self.norm_scale if spec.place == "pre_scaled" else normed

    @staticmethod
    def on_output(y: Tensor, spec: NormSpec, norm: nn.Module, second: nn.Module | None) -> Tensor:
        """The output of a sub-layer, normalised if its norm has that place."""
        if not spec.on_output:
            return y
        normed: Tensor = (norm if second is None else second)(y)
        return normed


class ParallelBlock(Block):
    """Mixer and MLP read the same normalised input."""

    def around(self, x: Tensor, mix: Callable[[Tensor], Tensor], shared: Shared) -> Tensor:
        x = self.begin_layer(x, shared)
        normed = self.norm_mixer(self.residual.enter(x, "mixer"))
        y: Tensor = self.mixer_branch(self.drop(mix(normed)))
        y = self.scale_branch(y + self.mlp_branch(self.mlp_output(normed, shared)))
        return self.residual.join(x, y, self.mixer_skip, "mixer") if self.spec.skips.mixer > 0 else y


def _further_inputs(spec: BlockSpec, context: LayerContext) -> tuple[str, ...]:
    """The inputs of the mixer that have norms of their own; that of queries has the norm of the mixer."""
    return ("key", "value") if context.separate_inputs and spec.norms[0].before else ()


def _each_normed(norms: Iterable[nn.Module], x: Tensor) -> Tensor:
    """The inputs of queries, keys and values [K, B, T, 3, D], each by its norm."""
    return torch.stack([norm(one) for norm, one in zip(norms, x.unbind(-2), strict=True)], -2)


def build_part(spec: MixerSpec | MLPSpec, context: LayerContext) -> nn.Module:
    """The module of a mixer or an MLP; one without a pack axis is wrapped in `Unpacked`."""
    return spec.build(context) if spec.pack_aware else Unpacked(partial(spec.build, context), context.pack)


def block_cost(spec: BlockSpec, context: LayerContext, length: int) -> dict[str, Cost]:
    """Cost of the forward pass over one sequence: keys `mixer`, `mlp`, `rest` (norms, skips, gains, convolutions)."""
    elements = length * context.width
    one_norm = spec.arrangement == "parallel" or not spec.mlp.present
    branches = 2 if spec.mlp.present else 1
    gains = spec.gains
    used = [gains.mixer_branch] + ([gains.mixer_skip] if spec.skips.mixer else [])
    if spec.mlp.present:
        used += [gains.mlp_branch] + ([gains.mlp_skip] if spec.skips.mlp else [])
    scaled = sum(gain != NO_GAIN for gain in used)
    joins = (spec.skips.mixer > 0) + spec.skips.mlp
    sums = (spec.skips.mixer == 2) + (spec.arrangement == "parallel")
    # A trained gain keeps its input, dropout its mask; the input of a skip is already kept.
    kept = gains.mixer_branch.trainable + (branches == 2 and gains.mlp_branch.trainable) + branches * (spec.dropout > 0)
    norms = spec.norms[:1] if one_norm else spec.norms
    normed = (norm.cost(context.width, length) * (1 + (norm.place == "sandwich")) for norm in norms)
    apart = total_cost(spec.norms[0].cost(context.width, length) for _ in _further_inputs(spec, context))
    scaled_norms = sum(norm.place == "pre_scaled" for norm in norms)
    gained = Cost(
        parameters=sum(gain.trainable for gain in used),
        multiplications=(scaled + scaled_norms) * elements,
        additions=sums * elements,
        activations=kept * elements,
    )
    convolved = (convolution.cost(length, channels) for convolution, channels in spec.channels_of_convolutions(context))
    rest = total_cost([*normed, apart, spec.residual.cost(context, length, joins), gained, *convolved])
    mlp = spec.mlp.cost(context, length)
    if spec.arrangement == "parallel":
        mlp += Cost(activations=-elements)  # the mixer keeps the input
    return {"mixer": _mixer_cost(spec.mixer, context, length), "mlp": mlp, "rest": rest}


def _mixer_cost(spec: MixerSpec, context: LayerContext, length: int) -> Cost:
    """The cost of a mixer, counted once for the many variants of a plan that have it."""
    try:
        return _count(type(spec).cost, spec, context, length)
    except TypeError:  # a field that cannot be hashed, such as a list
        return spec.cost(context, length)


@lru_cache(maxsize=256)
def _count(
    cost: Callable[[MixerSpec, LayerContext, int], Cost], spec: MixerSpec, context: LayerContext, length: int
) -> Cost:
    return cost(spec, context, length)


def with_initialiser(context: LayerContext, initialiser: InitialiserSpec | None) -> LayerContext:
    """The context with another initialiser, if one is given."""
    return context if initialiser is None else replace(context, initialiser=initialiser)


def _second_norm(spec: NormSpec, context: LayerContext) -> nn.Module | None:
    """The norm on the output of a sub-layer with `place: sandwich`, whose first norm is on its input."""
    return spec.build(context.pack, context.width) if spec.place == "sandwich" else None

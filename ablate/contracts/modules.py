"""Rules that the modules of all parts of a layer share, and what tries them: perturbed weights, noise, shared tensors.

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from ablate.analysis.numbers import plural
from ablate.nn.pack import State, Stepping, initialise
from ablate.nn.pack.initial import stream
from ablate.spec.base import Kinded
from ablate.spec.layer import LayerContext, PartSpec, PositionSpec

SpecT = TypeVar("SpecT", bound=Kinded)

TOLERANCE = 1e-4
"""Largest difference between two numbers that are equal but for rounding."""
_BFLOAT16_TOLERANCE = 0.1
"""Of outputs, over their root mean square; a number of bfloat16 is off by at most 2⁻⁸ of itself."""
SEEDS = (5, 2, 11)
"""Of a pack of three."""

VOCABULARY = 11
"""Number of token ids."""

SIZES = ((21, 3, 13), (8, 2, 1), (7, 7, 37))
"""Awkward sizes: width, heads, tokens; odd and prime ones, and a single token."""


def layer_contexts() -> list[LayerContext]:
    """Layers of awkward sizes."""
    return [
        LayerContext(
            1, width, heads, depth=5, context=length, causal=True, init_std=0.3, layer=4, vocabulary=VOCABULARY
        )
        for width, heads, length in SIZES
    ]


def describe(context: LayerContext) -> str:
    """A layer in words."""
    return f"width {context.width}, {plural(context.heads, 'head')}, {plural(context.context, 'token')}"


def noise(name: str, *shape: int) -> Tensor:
    """Normal numbers, the same at every call."""
    return torch.randn(shape, generator=stream(0, name))


def gap(left: Tensor, right: Tensor) -> float:
    """The largest difference of two tensors, relative to the RMS of the second where that is above 1."""
    return ((left - right).abs().max() / right.square().mean().sqrt().clamp(min=1)).item()


@torch.no_grad()
def perturb(module: nn.Module, seeds: Sequence[int], *, pack_aware: bool = True) -> nn.Module:
    """A module with perturbed weights: a gain with the initial value 0 would hide the parts behind it."""
    initialise(module, seeds)
    for name, parameter in module.named_parameters():
        for member, seed in enumerate(seeds):
            values = parameter[member] if pack_aware else parameter
            values += 0.3 * torch.randn(values.shape, generator=stream(seed, f"contract/{name}", values.shape))
    return module.eval()


def is_taken(spec: PartSpec | PositionSpec, context: LayerContext) -> bool:
    """Whether a part does not refuse a context."""
    try:
        spec.check(context)
    except ValidationError:
        return False
    longest = spec.longest_input(context)
    return longest is None or longest >= context.context


def token_noise(spec: Kinded, context: LayerContext, pack: int) -> Tensor:
    """Noise [K, B, T, D] for two sequences."""
    return noise("input", pack, 2, context.context, context.width)


@dataclass(frozen=True, slots=True)
class ModuleRules(Generic[SpecT]):
    """The rules of a family of parts; a contract names those that hold for its family.

    Attributes:
        build: The module of a spec in a context. It maps `inputs` to outputs.
        parameters: How many trainable parameters the spec's `cost` counts.
        inputs: Noise that the module takes, for a spec, a context and K.
        packs: Whether the modules of a spec have a pack axis.
        rounds: Whether rounding is tried in this context; once for each setting, as it does not depend on the size.
    """

    build: Callable[[SpecT, LayerContext], nn.Module]
    parameters: Callable[[SpecT, LayerContext], int]
    inputs: Callable[[SpecT, LayerContext, int], Tensor] = token_noise
    packs: Callable[[SpecT], bool] = lambda spec: True
    rounds: Callable[[SpecT, LayerContext], bool] = lambda spec, context: context.context == SIZES[0][2]

    def module(self, spec: SpecT, context: LayerContext, seeds: Sequence[int] = (0,)) -> nn.Module:
        """A pack of modules with perturbed weights, one for each seed."""
        built = self.build(spec, replace(context, pack=len(seeds)))
        return perturb(built, seeds, pack_aware=self.packs(spec))

    def keeps_shape(self, spec: SpecT, context: LayerContext) -> Iterator[str]:
        """[K, B, T, D] goes to [K, B, T, D], for the longest input and for shorter ones; finite numbers stay finite."""
        module = self.module(spec, context)
        for length in {context.context, max(1, context.context - 2)}:
            x = noise("input", 1, 2, length, context.width)
            y = module(x)
            if y.shape != x.shape:
                yield f"{tuple(x.shape)} became {tuple(y.shape)}"
            if not y.isfinite().all():
                yield "a finite input gave an output that is not finite"

    def reads_longer_inputs(self, spec: SpecT, context: LayerContext) -> Iterator[str]:
        """It reads inputs of four times its context, or as long as its `longest_input` says.

        `training.evaluate_at` relies on it.
        """
        if context.context != SIZES[0][2]:  # as rounding, this is tried in one context
            return
        longest = cast(PartSpec | PositionSpec, spec).longest_input(context)
        longest = min(longest or 4 * context.context, 4 * context.context)
        try:
            y = self.module(spec, context)(self.inputs(spec, replace(context, context=longest), 1))
        except Exception as error:  # whatever a user's module raises
            yield (
                f"built for {context.context} tokens it cannot read {longest}: {type(error).__name__}: {error}. "
                "If it cannot, define `longest_input`"
            )
            return
        if not y.isfinite().all():
            yield f"built for {context.context} tokens, it gave an output that is not finite for {longest}"

    def maps_each_token_alone(self, spec: SpecT, context: LayerContext) -> Iterator[str]:
        """Changing one token moves the output at no other; the mixer alone mixes tokens, and decoding relies on it."""
        module = self.module(spec, context)
        x, other = (noise(name, 1, 2, context.context, context.width) for name in ("input", "other"))
        last = torch.arange(context.context)[:, None] == context.context - 1
        moved = (module(x) - module(torch.where(last, other, x)))[:, :, :-1]
        if moved.numel() and moved.abs().max() > TOLERANCE:
            yield f"changing the last token moved others by {moved.abs().max().item():.2g}"

    def has_gradients(self, spec: SpecT, context: LayerContext) -> Iterator[str]:
        """Every trainable parameter, and the input, gets a finite gradient."""
        module, x = self.module(spec, context), self.inputs(spec, context, 1).requires_grad_()
        y = module(x)
        (y * noise("direction", *y.shape)).sum().backward()
        trainable = [(name, value) for name, value in module.named_parameters() if value.requires_grad]
        for name, tensor in [("the input", x), *trainable]:
            if tensor.grad is None:
                yield f"{name} gets no gradient"
            elif not tensor.grad.isfinite().all():
                yield f"the gradient of {name} is not finite"

    def works_in_bfloat16(self, spec: SpecT, context: LayerContext) -> Iterator[str]:
        """Under bfloat16 matmuls it gives what single precision gives, within rounding, with finite gradients.

        Half of the outputs must be near: rounding may change a choice, such as a bucket or an expert, but a wrong form
        moves nearly all.
        """
        if not self.rounds(spec, context):
            return
        module, x = self.module(spec, context), self.inputs(spec, context, 1)
        exact = module(x).detach()
        x.requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = module(x)
        (y.float() * noise("direction", *y.shape)).sum().backward()
        if not y.isfinite().all() or x.grad is None or not x.grad.isfinite().all():
            yield "under bfloat16 matmuls an output or the gradient of the input is not finite"
            return
        off = (y.float() - exact).abs().median().item()
        if off > _BFLOAT16_TOLERANCE * exact.square().mean().sqrt().item():
            yield f"under bfloat16 matmuls half of the outputs are more than {off:.2g} off those of single precision"

    def builds_without_values(self, spec: SpecT, context: LayerContext) -> Iterator[str]:
        """On the device `meta`, where plans build models, it has the same tensors: it reads no values while built."""
        real = _shapes(self.build(spec, context))
        try:
            with torch.device("meta"):
                outlined = _shapes(self.build(spec, context))
        except Exception as error:  # whatever reads a value, torch refuses in its own way
            what = f"`build` raised {type(error).__name__}: {error}; it may not read values of tensors"
            yield f"on the device `meta`, {what}"
            return
        for name in sorted({*real, *outlined}):
            if real.get(name) != outlined.get(name):
                yield f"on the device `meta`, {name} is {outlined.get(name)}, and with values {real.get(name)}"

    def counts_parameters(self, spec: SpecT, context: LayerContext) -> Iterator[str]:
        """`cost` counts the trainable parameters that the module has."""
        counted, module = self.parameters(spec, context), self.build(spec, context)
        real = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
        if counted != real:
            yield f"`cost` counts {counted} parameters, and the module has {real}"

    def isolates_pack_members(self, spec: SpecT, context: LayerContext) -> Iterator[str]:
        """A pack of three gives, member by member, what three packs of one with the same seeds give."""
        if not self.packs(spec):
            return
        x = self.inputs(spec, context, len(SEEDS))
        packed = self.module(spec, context, SEEDS)(x)
        for member, seed in enumerate(SEEDS):
            off = gap(packed[member], self.module(spec, context, [seed])(x[member : member + 1])[0])
            if off > TOLERANCE:
                yield f"member {member} of a pack of 3 is {off:.2g} off the same seed alone"


def _shapes(module: nn.Module) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    tensors = (*module.named_parameters(), *module.named_buffers())
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors}


def shared_noise(spec: PartSpec, context: LayerContext, like: Tensor, first: int = 0) -> tuple[Tensor, ...]:
    """What a part reads, for tokens like those of x [K, B, T, ...] from position `first` on: noise by position."""
    pack, batch, tokens = like.shape[:3]
    length, made = max(context.context, first + tokens), []
    for tensor in spec.reads(context):
        if tensor == context.tokens:
            whole = (torch.arange(length) % VOCABULARY).view(1, 1, -1)
        else:  # of one length for all inputs within the context: other noise would not begin with the same numbers
            whole = noise(f"shared {tensor.name} {tensor.layer}", 1, 1, length, *tensor.sizes)
        made.append(whole[:, :, first : first + tokens].expand(pack, batch, *[-1] * (whole.dim() - 2)))
    return tuple(made)


class GivenShared(nn.Module):
    """A part that gets noise for the shared tensors that it reads; the shapes of those it publishes are checked."""

    def __init__(self, part: nn.Module, spec: PartSpec, context: LayerContext) -> None:
        super().__init__()
        self.part = part
        self.spec = spec
        self.context = context

    def forward(self, x: Tensor, *more: Any) -> Any:
        """As the part, without what it publishes."""
        return self.result(x, self.part(x, *more, **self.given(x, 0)))

    def given(self, x: Tensor, first: int) -> dict[str, tuple[Tensor, ...]]:
        """The keyword that holds what the part reads, if it reads anything."""
        read = shared_noise(self.spec, self.context, x, first)
        return {"shared": read} if read else {}

    def result(self, x: Tensor, made: Any) -> Any:
        """What a part gives without what it publishes.

        Raises:
            ValueError: It publishes other tensors than it declares.
        """
        publishes = self.spec.publishes(self.context)
        if not publishes:
            return made
        *result, published = made
        shapes = [tuple(tensor.shape) for tensor in published]
        declared = [(*x.shape[:3], *tensor.sizes) for tensor in publishes]
        if shapes != declared:
            raise ValueError(f"it publishes tensors of the shapes {shapes}, and declares {declared}")
        return result[0] if len(result) == 1 else tuple(result)


class SteppingGivenShared(GivenShared):
    """The same for a mixer that has a `step`."""

    def step(self, x: Tensor, position: int, state: State) -> Any:
        """The part's `step`, given the shared tensors that it reads."""
        assert isinstance(self.part, Stepping)
        return self.result(x, self.part.step(x, position, state, **self.given(x, position)))


def given_shared(part: nn.Module, spec: PartSpec, context: LayerContext) -> nn.Module:
    """A part that can be called without shared tensors; itself, if it shares none."""
    if not spec.shares:
        return part
    return (SteppingGivenShared if isinstance(part, Stepping) else GivenShared)(part, spec, context)

"""What the contracts of a layer's parts have in common: a module away from its initial values, noise, shared tensors.

Shapes: K pack, B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ablate.analysis.text import plural
from ablate.nn.pack import State, Stepping, initialise
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext
from ablate.spec.part import PartSpec

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
        LayerContext(1, width, heads, depth=5, context=length, causal=True, init_std=0.3, layer=4)
        for width, heads, length in SIZES
    ]


def describe(context: LayerContext) -> str:
    """A layer in words."""
    return f"width {context.width}, {plural(context.heads, 'head')}, {plural(context.context, 'token')}"


def noise(name: str, *shape: int) -> Tensor:
    """Normal numbers, the same at every call."""
    return torch.randn(shape, generator=stream(0, name))


def gap(left: Tensor, right: Tensor) -> float:
    """The largest difference of two tensors."""
    return (left - right).abs().max().item()


@torch.no_grad()
def shaken(module: nn.Module, seeds: Sequence[int], *, pack_aware: bool = True) -> nn.Module:
    """A module with perturbed weights: a gain with the initial value 0 would hide the parts behind it."""
    initialise(module, seeds)
    for name, parameter in module.named_parameters():
        for member, seed in enumerate(seeds):
            values = parameter[member] if pack_aware else parameter
            values += 0.3 * torch.randn(values.shape, generator=stream(seed, f"contract/{name}", values.shape))
    return module.eval()


def without_gradient(module: nn.Module, x: Tensor, y: Tensor) -> Iterator[str]:
    """Backward through y; yields the trainable parameters, and the input x, that got no finite gradient."""
    (y * noise("direction", *y.shape)).sum().backward()  # type: ignore[no-untyped-call]
    trainable = [(name, value) for name, value in module.named_parameters() if value.requires_grad]
    for name, tensor in [("the input", x), *trainable]:
        if tensor.grad is None:
            yield f"{name} gets no gradient"
        elif not tensor.grad.isfinite().all():
            yield f"the gradient of {name} is not finite"


def wrong_in_bfloat16(module: nn.Module, x: Tensor) -> Iterator[str]:
    """Yields a sentence if the module cannot train under bfloat16 products, or gives something else there.

    Half of the outputs must be near: rounding may change a choice, such as a bucket or an expert, but a wrong form
    moves nearly all.
    """
    exact = module(x).detach()
    x = x.detach().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = module(x)
    (y.float() * noise("direction", *y.shape)).sum().backward()
    if not y.isfinite().all() or x.grad is None or not x.grad.isfinite().all():
        yield "under bfloat16 products an output or the gradient of the input is not finite"
        return
    off = (y.float() - exact).abs().median().item()
    if off > _BFLOAT16_TOLERANCE * exact.square().mean().sqrt().item():
        yield f"under bfloat16 products half of the outputs are more than {off:.2g} off those of single precision"


def miscounted(module: nn.Module, counted: int) -> Iterator[str]:
    """Yields a sentence if a module has another number of trainable parameters than its cost counts."""
    real = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
    if counted != real:
        yield f"`cost` counts {counted} parameters, and the module has {real}"


def differs_without_values(build: Callable[[], nn.Module]) -> Iterator[str]:
    """Yields a sentence for each tensor of a module that is another one if it is built on the device `meta`.

    Plans build models there, where tensors have shapes but neither values nor memory.
    """
    real = _shapes(build())
    try:
        with torch.device("meta"):
            outlined = _shapes(build())
    except Exception as error:  # whatever reads a value, torch refuses in its own way
        yield f"on the device `meta`, `build` raised {type(error).__name__}: {error}; it may not read values of tensors"
        return
    for name in sorted({*real, *outlined}):
        if real.get(name) != outlined.get(name):
            yield f"on the device `meta`, {name} is {outlined.get(name)}, and with values {real.get(name)}"


def _shapes(module: nn.Module) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    tensors = (*module.named_parameters(), *module.named_buffers())
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors}


def unequal_members(packed: Tensor, alone: Callable[[int, int], Tensor]) -> Iterator[str]:
    """Yields a sentence for each member of a pack of three whose output differs from that of the same seed alone.

    Args:
        packed: Output of the pack, [3, ...].
        alone: Output of a member of this index and seed in a pack of one, without the pack axis.
    """
    for member, seed in enumerate(SEEDS):
        off = gap(packed[member], alone(member, seed))
        if off > TOLERANCE:
            yield f"member {member} of a pack of 3 is {off:.2g} off the same seed alone"


def mixed_tokens(run: Callable[[Tensor], Tensor], context: LayerContext) -> Iterator[str]:
    """Yields a sentence if a change of the last token changes the output at another one.

    Args:
        run: Maps [1, B, T, D] to the same shape.
        context: Gives T and D.
    """
    x, other = (noise(name, 1, 2, context.context, context.width) for name in ("input", "other"))
    last = torch.arange(context.context)[:, None] == context.context - 1
    moved = (run(x) - run(torch.where(last, other, x)))[:, :, :-1]
    if moved.numel() and moved.abs().max() > TOLERANCE:
        yield f"changing the last token moved others by {moved.abs().max().item():.2g}"


def shared_noise(spec: PartSpec, context: LayerContext, like: Tensor, first: int = 0) -> tuple[Tensor, ...]:
    """What a part reads, for tokens like those of x [K, B, T, ...] from position `first` on: noise by position."""
    pack, batch, tokens = like.shape[:3]
    made = []
    for tensor in spec.reads(context):
        if tensor == context.tokens:
            whole = (torch.arange(context.context) % VOCABULARY).view(1, 1, -1)
        else:  # of one length always: shorter noise would not begin with the same numbers
            whole = noise(f"shared {tensor.name} {tensor.layer}", 1, 1, context.context, *tensor.sizes)
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

    def step(self, x: Tensor, place: int, state: State) -> Any:
        """The part's `step`, given the shared tensors that it reads."""
        assert isinstance(self.part, Stepping)
        return self.result(x, self.part.step(x, place, state, **self.given(x, place)))


def given_shared(part: nn.Module, spec: PartSpec, context: LayerContext) -> nn.Module:
    """A part that can be called without shared tensors; itself, if it shares none."""
    if not spec.shares:
        return part
    return (SteppingGivenShared if isinstance(part, Stepping) else GivenShared)(part, spec, context)

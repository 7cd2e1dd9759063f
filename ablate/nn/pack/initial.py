"""Modules with a pack axis, modules without one, and their initial values.

Each member of a pack gets the values of its own seed, independent of the other members. The random stream of a
parameter is keyed by (seed, qualified name, shape), so two variants of one seed have the same initial values in all
parameters of the same name and shape (common random numbers).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from ablate.spec.layer import Initial


class Packed(nn.Module):
    """Base of all primitives: tensors are declared as [K, ...] and filled by `initialise`.

    Attributes:
        pack: K.
        initial: Name of a tensor to the rule of its initial values.
        decayed: Names of the parameters with weight decay (matrices; not gains, norms, biases).
        depthwise: Names of the parameters with two axes that are not matrices: depthwise filters, whose fan-in is their
            number of taps.
        outputs_first: Names of the matrices [..., out, in]; all others are [..., in, out].
    """

    is_table: ClassVar[bool] = False
    """Whether its weight is a table of vectors, for tokens or positions, not a map."""
    share_key: object = None
    """In the layers of a stack, modules with equal keys are one module; None: not shared."""

    def __init__(self, pack: int) -> None:
        super().__init__()
        self.pack = pack
        self.initial: dict[str, Initial] = {}
        self.decayed: set[str] = set()
        self.depthwise: set[str] = set()
        self.outputs_first: set[str] = set()

    def declare(
        self,
        name: str,
        shape: tuple[int, ...],
        initial: Initial,
        *,
        decay: bool = False,
        trainable: bool = True,
        depthwise: bool = False,
        outputs_first: bool = False,
    ) -> None:
        """Register a parameter (or, not trainable, a buffer) of shape [K, *shape]."""
        values = torch.zeros((self.pack, *shape))
        if trainable:
            self.register_parameter(name, nn.Parameter(values))
        else:
            self.register_buffer(name, values)
        self.initial[name] = initial
        if decay:
            self.decayed.add(name)
        if depthwise:
            self.depthwise.add(name)
        if outputs_first:
            self.outputs_first.add(name)


class Unpacked(nn.Module):
    """Wraps a mixer or MLP written for [B, T, D]. Its parameters carry no pack axis; it is never fused.

    Args:
        build: Creates the module; `rebuild` calls it again, because only the module knows its initial values.
        pack: K, which must be 1.
    """

    def __init__(self, build: Callable[[], nn.Module], pack: int) -> None:
        super().__init__()
        if pack != 1:
            raise ValueError("a part that is not pack-aware is trained in a pack of one")
        self._build = build
        self.module = build()

    def rebuild(self, seed: int) -> None:
        """Build the module with torch's random generator seeded by `seed`."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.module = self._build()

    def forward(self, x: Tensor, *padding: Tensor | None) -> Tensor:
        """[1, B, T, D] to the same; `padding` [1, B, T], for a mixer, is True where a token is real."""
        y: Tensor = self.module(x[0], *(None if mask is None else mask[0] for mask in padding))
        return y.unsqueeze(0)


def constant(value: float) -> Initial:
    """All `value`."""
    return lambda values, generator: values.fill_(value)


def normal(std: float) -> Initial:
    """Independent N(0, std²)."""
    return lambda values, generator: values.normal_(0.0, std, generator=generator)


def uniform(bound: float) -> Initial:
    """Independent uniform values between -bound and bound."""
    return lambda values, generator: values.uniform_(-bound, bound, generator=generator)


def log_uniform(low: float, high: float) -> Initial:
    """Logarithms of independent uniform values between `low` and `high`."""
    return lambda values, generator: values.uniform_(low, high, generator=generator).log_()


def step_bias(low: float, high: float, floor: float = 1e-4) -> Initial:
    """Biases b for which softplus(b) is log-uniform between `low` and `high`, and `floor` at least (Mamba)."""

    def fill(values: Tensor, generator: torch.Generator) -> Tensor:
        step = values.uniform_(math.log(low), math.log(high), generator=generator).exp_().clamp_(min=floor)
        return step.add_((-torch.expm1(-step)).log_())  # the inverse of softplus

    return fill


def orthogonal(values: Tensor, generator: torch.Generator) -> Tensor:
    """A uniformly random orthogonal matrix [in, out]."""
    nn.init.orthogonal_(values, generator=generator)
    return values


def identity(values: Tensor, generator: torch.Generator) -> Tensor:
    """The identity matrix [in, out]."""
    nn.init.eye_(values)
    return values


def stream(seed: int, name: str, shape: Sequence[int] = ()) -> torch.Generator:
    """The random stream of (seed, name, shape), on the CPU so that every device starts equal."""
    digest = hashlib.sha256(f"{seed}/{name}/{tuple(shape)}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))


@torch.no_grad()
def initialise(model: nn.Module, seeds: Sequence[int]) -> None:
    """Give member k of every packed parameter and buffer the initial values of `seeds[k]`, in place."""
    for path, module in list(model.named_modules()):
        if isinstance(module, Unpacked):
            module.rebuild(stream(seeds[0], path).initial_seed())
        elif isinstance(module, Packed):
            for name, initial in module.initial.items():
                tensor = getattr(module, name)
                qualified = f"{path}.{name}" if path else name
                if tensor.shape[0] != len(seeds):
                    raise ValueError(f"{qualified} holds {tensor.shape[0]} members, and {len(seeds)} seeds were given")
                for member, seed in enumerate(seeds):
                    values = torch.empty(tensor.shape[1:], dtype=tensor.dtype)
                    tensor[member] = initial(values, stream(seed, qualified, values.shape))

"""Initial values: each member of a pack gets the values of its own seed, independent of the other members.

The random stream of a parameter is keyed by (seed, qualified name, shape), so two variants of one seed have the same
initial values in all parameters of the same name and shape (common random numbers).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ablate.nn.pack.packed import Packed
from ablate.nn.pack.unpacked import Unpacked
from ablate.spec.initialiser import Initial


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
            module.start(stream(seeds[0], path).initial_seed())
        elif isinstance(module, Packed):
            for name, initial in module.initial.items():
                tensor = getattr(module, name)
                qualified = f"{path}.{name}" if path else name
                if tensor.shape[0] != len(seeds):
                    raise ValueError(f"{qualified} holds {tensor.shape[0]} members, and {len(seeds)} seeds were given")
                for member, seed in enumerate(seeds):
                    values = torch.empty(tensor.shape[1:], dtype=tensor.dtype)
                    tensor[member] = initial(values, stream(seed, qualified, values.shape))

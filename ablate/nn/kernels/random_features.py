"""Random features of a kernel: κ(x, y) ≈ φ(x)·φ(y), from the projections u = ωᵀ·x of x on random directions ω.

Random kitchen sinks (RKS): cosines and sines, for any shift-invariant kernel. Positive random features (PRF):
exponentials, which keep every weight of the attention above 0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def scaled(x: Tensor) -> Tensor:
    """x/d^¼, [..., d] to the same: done to queries and keys, it divides their products by √d."""
    return x / math.sqrt(math.sqrt(x.shape[-1]))


def fourier(u: Tensor, scale: float) -> Tensor:
    """scale·[cos u, sin u] ⊕ 1, [..., m] to [..., 2m + 1]; the kernel gains 1, which keeps denominators from 0."""
    return torch.cat([scale * u.cos(), scale * u.sin(), u.new_ones(1).expand(*u.shape[:-1], 1)], -1)


def log_positive(u: Tensor, x: Tensor, weight: float) -> Tensor:
    """log of exp(u - weight·‖x‖²)/√m: u [..., m] and x [..., d] to [..., m]."""
    return u - weight * (x * x).sum(-1, keepdim=True) - 0.5 * math.log(u.shape[-1])


def usual_samples(width: int) -> int:
    """The power of two near d·ln d, at least 2: from half-way up to the next one, the next one."""
    wanted = max(2.0, width * math.log(width))
    below = 1 << math.floor(math.log2(wanted))
    return 2 * below if wanted >= 1.5 * below else below


def xavier_uniform(values: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform on ±√(6/(fan in + fan out)), the fans as torch counts them."""
    return nn.init.xavier_uniform_(values, generator=generator)


def orthogonal_directions(values: Tensor, generator: torch.Generator) -> Tensor:
    """m Gaussian vectors [m, d], orthogonal to each other in blocks of d; their lengths stay independent."""
    width = values.shape[1]
    for start in range(0, len(values), width):
        nn.init.orthogonal_(values[start : start + width], generator=generator)
    lengths = torch.empty_like(values).normal_(generator=generator).norm(dim=1, keepdim=True)
    return values.mul_(lengths)

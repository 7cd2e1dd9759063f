"""Random features of a kernel: κ(x, y) ≈ φ(x)·φ(y), from the projections u = ωᵀ·x of x on random directions ω.

Random kitchen sinks (RKS): cosines and sines, for any shift-invariant kernel. Positive random features (PRF):
exponentials, which keep every weight of the attention above 0.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor, nn

from ablate.spec.cost import Cost


def scale_vectors(x: Tensor) -> Tensor:
    """x/d^¼, [..., d] to the same: applied to queries and keys, it divides their products by √d.

    Applied to the directions ω instead, it gives the projections of scaled queries and keys with less work.
    """
    return x / math.sqrt(math.sqrt(x.shape[-1]))


def project_vectors(x: Tensor, omega: Tensor) -> Tensor:
    """ωᵀ·x, one set of directions for all heads: x [K, B, H, T, d] and ω [K, m, d] to [K, B, H, T, m].

    Heads are split from the width, so that in memory they come after the tokens; in this order nothing is copied.
    """
    return torch.einsum("kbthd,kmd->kbthm", x.transpose(2, 3), omega).transpose(2, 3)


def fourier(u: Tensor, scale: float) -> Tensor:
    """scale·[cos u, sin u] ⊕ 1, [..., m] to [..., 2m + 1]; the kernel gains 1, which keeps denominators from 0."""
    if torch.compiler.is_compiling():
        return torch.cat([scale * u.cos(), scale * u.sin(), u.new_ones(1).expand(*u.shape[:-1], 1)], -1)
    y: Tensor = _Fourier.apply(u, scale)  # type: ignore[no-untyped-call]
    return y


def kernel_features(u: Tensor, x: Tensor, *, logarithmic: bool) -> Tensor:
    """√(1/m)·[cos u, sin u] ⊕ 1 for the projections u [..., m] of x [..., d]; or log φ of φ = exp(u - ‖x‖²)/√m."""
    return (
        log_positive(u, x, weight=1 / math.sqrt(x.shape[-1])) if logarithmic else fourier(u, 1 / math.sqrt(u.shape[-1]))
    )


def kernel_cost(width: int, count: int, *, logarithmic: bool) -> Cost:
    """Cost of `kernel_features` for one vector and `count` projections; cosines and sines count as exponentials."""
    if logarithmic:
        return Cost(multiplications=width, additions=width - 1 + 2 * count, exponentiations=count)
    return Cost(multiplications=2 * count, exponentiations=2 * count)


class _Fourier(torch.autograd.Function):
    """Keeps only its result: cosine and sine are each other's derivative, up to the sign."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, u: Tensor, scale: float) -> Tensor:
        y = torch.cat([u.cos(), u.sin(), u[..., :1]], -1).mul_(scale)
        y[..., -1:].fill_(1.0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors  # type: ignore[attr-defined]
        (g,) = gradients
        m = y.shape[-1] // 2
        return torch.addcmul(g[..., m:-1] * y[..., :m], g[..., :m], y[..., m:-1], value=-1), None


def log_positive(u: Tensor, x: Tensor, weight: float) -> Tensor:
    """log of exp(u - weight·‖x‖²)/√m: u [..., m] and x [..., d] to [..., m]."""
    return u - weight * (x * x).sum(-1, keepdim=True) - 0.5 * math.log(u.shape[-1])


def usual_samples(width: int) -> int:
    """d·ln d rounded to a power of two, at least 2; from half-way between two powers on it is rounded up."""
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


LARGEST_PRODUCT = 256
"""Width up to which a product with H is faster than log n passes over the data: 3 times at width 64 on a Zen 4."""


def hadamard(x: Tensor) -> Tensor:
    """x·H_n over the last axis, whose width n is a power of two: [..., n] to the same."""
    width = x.shape[-1]
    if width > LARGEST_PRODUCT or torch.compiler.is_compiling():
        return in_passes(x)
    return x @ _matrix(width, x.dtype, x.device)


def hadamard_cost(width: int) -> Cost:
    """Cost of one transform."""
    if width > LARGEST_PRODUCT:
        return Cost(additions=width * (width.bit_length() - 1))
    return Cost(multiplications=width * width, additions=width * (width - 1))


def in_passes(x: Tensor) -> Tensor:
    """`hadamard` in n·log n additions."""
    size = 1
    while size < x.shape[-1]:
        pairs = torch.unflatten(x, -1, (-1, 2, size))
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        x = torch.stack([first + second, first - second], -2).flatten(-3)
        size *= 2
    return x


@lru_cache(maxsize=16)
def _matrix(width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False), torch.no_grad():
        return in_passes(torch.eye(width, dtype=dtype, device=device))

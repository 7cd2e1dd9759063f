"""Fourier transforms of real columns as matmuls along the first axis, without transposing.

Short transforms of many columns are limited by memory traffic for reordering, which a product avoids. n points need one
product, or two with n = n1·n2 (Cooley and Tukey 1965; with the twiddle factors in the second matrices, as in
arXiv:2311.05908): t = n2·t1 + t2 and f = f1 + n1·f2 give ω^(t·f) = ω_n1^(t1·f1) · ω_n^(t2·f1)·ω_n2^(t2·f2).
Columns are real, so that f1 ≤ n1/2 is enough. The spectrum has F = (n1/2 + 1)·n2 frequencies, in the order (f1, f2).

Shapes: K pack, T rows (zero-padded to n), C columns, h = n1/2 + 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.nn.kernels.product import product
from ablate.spec.cost import Cost


def fast_length(least: int) -> int:
    """The smallest even number of at least `least` with no prime factor above 5."""
    length = least + least % 2
    while not _is_smooth(length):
        length += 2
    return length


def fourier_cost(length: int, transforms: int, *, real: bool) -> Cost:
    """Cost of discrete Fourier transforms by radix 2; log₂ is not rounded if `length` is not a power of 2.

    A butterfly (one complex product, two complex sums) is 4 products and 6 sums, and there are N/2·log₂N of them; a
    transform from or to real numbers needs half.
    """
    butterflies = transforms * length * math.log2(length) / (4 if real else 2)
    return Cost(multiplications=round(4 * butterflies), additions=round(6 * butterflies))


def _is_smooth(number: int) -> bool:
    for prime in (2, 3, 5):
        while number % prime == 0:
            number //= prime
    return number == 1


_WHOLE = 256
"""Points up to which one product is faster than two, on a Zen 5."""
_FEW = 1024
"""Points up to which n2 is the smaller of the two."""
_SECOND = (8, 32)


@dataclass(frozen=True)
class Points:
    """n = n1·n2 points, n1 even."""

    first: int
    second: int

    @classmethod
    def of(cls, least: int) -> Points:
        """A length of at least `least` points, with the factors that were measured to be the fastest."""
        second = 1 if least <= _WHOLE else _SECOND[least > _FEW]
        return cls(2 * math.ceil(least / (2 * second)), second)


def spectrum(x: Tensor, points: Points) -> Tensor:
    """X_f = Σ_t x_t·e^(-2πi·tf/n): [K, T, C] to its real and imaginary parts, [K, F, 2, C]."""
    pack, rows, columns = x.shape
    tables = _tables(points, x.dtype, x.device)
    fill = -rows % points.second
    x = (F.pad(x, (0, 0, 0, fill)) if fill else x).reshape(pack, -1, points.second * columns)
    y = product(tables.analysis[:, : x.shape[1]].expand(pack, -1, -1), x)  # [K, h·2, n2·C]
    if points.second > 1:
        y = _by_frequency(tables.twiddled, y, columns)
    return y.view(pack, -1, 2, columns)


def signal(spectra: Tensor, points: Points, rows: int) -> Tensor:
    """The first T rows of the signal with this spectrum: [K, F, 2, C] to [K, T, C]."""
    pack, columns = spectra.shape[0], spectra.shape[-1]
    tables = _tables(points, spectra.dtype, spectra.device)
    y = spectra.reshape(pack, -1, points.second * columns)
    if points.second > 1:
        y = _by_frequency(tables.twiddled.mT, y, columns).view(y.shape)
    needed = math.ceil(rows / points.second)
    x = product(tables.synthesis[:needed].expand(pack, -1, -1), y)
    return x.view(pack, -1, columns)[:, :rows]


def _by_frequency(matrices: Tensor, y: Tensor, columns: int) -> Tensor:
    """A product for each f1: [h, 2·n2, 2·n2] and [K, h·2, n2·C] to [K·h, 2·n2, C]."""
    parts = y.reshape(-1, matrices.shape[-1], columns)
    return product(matrices.expand(len(y), *matrices.shape).flatten(0, 1), parts)


@dataclass(frozen=True)
class _Tables:
    analysis: Tensor
    """[h·2, n1]: cos and -sin of 2π·t1·f1/n1."""
    twiddled: Tensor
    """[h, n2·2, 2·n2]: ω_n^(t2·f1)·ω_n2^(t2·f2) as real numbers, rows (f2, part) and columns (part, t2)."""
    synthesis: Tensor
    """[n1, h·2]: the inverse of `analysis`; each f1 stands for n1 - f1 too."""


@cache  # unbounded: a CUDA graph may read the tables at any later time
@torch.inference_mode(False)
def _tables(points: Points, dtype: torch.dtype, device: torch.device) -> _Tables:
    first, second = points.first, points.second
    counted = [torch.arange(size, dtype=torch.float64) for size in (first, first // 2 + 1, second)]
    t1, f1, t2 = counted
    f2 = t2
    turn = torch.outer(f1, t1).remainder(first) * (-2 * math.pi / first)
    analysis = torch.stack([turn.cos(), turn.sin()], 1)  # [h, 2, n1]
    weight = torch.full_like(f1, 2 / (first * second))
    weight[[0, -1]] /= 2  # 0 and n1/2 stand for themselves alone
    twiddle = -2 * math.pi * (f1[:, None, None] / (first * second) + f2[:, None] / second) * t2  # [h, f2, t2]
    cos, sin = twiddle.cos(), twiddle.sin()
    twiddled = torch.stack([torch.cat([cos, -sin], 2), torch.cat([sin, cos], 2)], 2)  # [h, f2, part, (part, t2)]
    return _Tables(
        analysis.flatten(0, 1).to(device, dtype),
        twiddled.flatten(1, 2).to(device, dtype),
        (analysis * weight[:, None, None]).flatten(0, 1).T.contiguous().to(device, dtype),
    )

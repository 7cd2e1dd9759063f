"""Causal convolution along the tokens: y_t = Σ_{s≤t} x_s · w_{t-s}, kernels indexed by lag (row 0 is the token itself).

Three kinds of w: `depthwise`, a vector for each lag (x_s ∘ w_{t-s}); `shared`, a scalar for each lag; `full`, a matrix
for each lag (x_s·W_{t-s}). Each is computed directly or by Fourier transform, which sizes decide as measured on
a CPU. The transforms are zero-padded, so that the convolution is not circular, and computed in float32 at least; for
the backward pass x and w are kept, and the transforms of x are computed again.

Fourier transforms of real columns are matmuls along the first axis, without transposing. Short transforms of many
columns are limited by memory traffic for reordering, which a product avoids. n points need one product, or two with n =
n1·n2 (Cooley and Tukey 1965; with the twiddle factors in the second matrices, as in arXiv:2311.05908): t = n2·t1 + t2
and f = f1 + n1·f2 give ω^(t·f) = ω_n1^(t1·f1) · ω_n^(t2·f1)·ω_n2^(t2·f2). Columns are real, so that f1 ≤ n1/2 is
enough. The spectrum has F = (n1/2 + 1)·n2 frequencies, in the order (f1, f2).

Shapes: K pack, B batch, T tokens, D width, L lags (rows beyond T are not used), n points of a transform, F frequencies.
Of transforms: K pack, T rows (zero-padded to n), C columns, h = n1/2 + 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
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


# Measured forward and backward on one thread of a Zen 5, widths 16 to 256: where the direct form stops being faster.
_FEW_LAGS = 8  # depthwise: each lag is a pass over x
_FEW_PAIRS = 256  # depthwise: below it pairs of texts are no faster than real transforms (0.9 to 1.0 on a Zen 4)
_FEW_TOKENS = 8  # full: the direct form copies x once for each token
_FEW_SHARED = 256  # shared: one T x T product for all channels
_GROUP = 1 << 17  # numbers in the spectra that are worked on at a time


def depthwise(x: Tensor, w: Tensor) -> Tensor:
    """y_t = Σ_{s≤t} x_s ∘ w_{t-s}: x [K, B, T, D] and w [K, L, D], or [K, L, 1] for all channels, to [K, B, T, D]."""
    lags = min(x.shape[2], w.shape[1])
    if lags <= _FEW_LAGS:
        return depthwise_direct(x, w)
    return depthwise_fourier(x, w) if x.shape[1] % 2 or lags < _FEW_PAIRS else depthwise_pairs(x, w)


def shared(x: Tensor, w: Tensor) -> Tensor:
    """y_t = Σ_{s≤t} w_{t-s}·x_s: x [K, B, T, D] and w [K, L] to [K, B, T, D]."""
    return shared_direct(x, w) if x.shape[2] <= _FEW_SHARED else depthwise(x, w[..., None])


def full(x: Tensor, w: Tensor) -> Tensor:
    """y_t = Σ_{s≤t} x_s·W_{t-s}: x [K, B, T, D] and w [K, L, D, E] to [K, B, T, E]."""
    return full_direct(x, w) if x.shape[2] <= _FEW_TOKENS else full_fourier(x, w)


def depthwise_direct(x: Tensor, w: Tensor) -> Tensor:
    """`depthwise` lag by lag."""
    length = x.shape[2]
    w = w[:, :length]
    lags = w.shape[1]
    before = F.pad(x, (0, 0, lags - 1, 0))
    # All terms are views of `before`, so that it alone is kept for the backward pass.
    y, *others = (before.narrow(2, lags - 1 - lag, length) * w[:, None, lag, None] for lag in range(lags))
    for term in others:
        y = y + term
    return y


def shared_direct(x: Tensor, w: Tensor) -> Tensor:
    """`shared` as one product with the Toeplitz matrix of w."""
    length = x.shape[2]
    w = w[:, :length]
    falling = F.pad(w, (length - 1, length - w.shape[1]))
    toeplitz = falling.unfold(1, length, 1).flip(2)  # [K, T, T]: w_{t-s}, 0 above the diagonal
    rows = x.transpose(1, 2)  # [K, T, B, D]
    return (toeplitz @ rows.flatten(2)).view(rows.shape).transpose(1, 2)


def full_direct(x: Tensor, w: Tensor) -> Tensor:
    """`full` as one product of all windows of x with all of w."""
    w = w[:, : x.shape[2]]
    lags = w.shape[1]
    windows = F.pad(x, (0, 0, lags - 1, 0)).unfold(2, lags, 1).flip(4)  # [K, B, T, D, L]
    stacked = w.transpose(1, 2).flatten(1, 2)  # [K, D·L, E]
    y = windows.flatten(3).flatten(1, 2) @ stacked
    return y.view(*x.shape[:3], w.shape[-1])


def depthwise_fourier(x: Tensor, w: Tensor) -> Tensor:
    """`depthwise` as a product of transforms."""
    y: Tensor = _Depthwise.apply(*_exact(x, w))  # type: ignore[no-untyped-call]
    return y.to(x.dtype)


def depthwise_pairs(x: Tensor, w: Tensor) -> Tensor:
    """`depthwise` of an even batch: two texts are the real and imaginary parts of one, which a real w does not mix."""
    y: Tensor = _Pairs.apply(*_exact(x, w))  # type: ignore[no-untyped-call]
    return y.to(x.dtype)


def full_fourier(x: Tensor, w: Tensor) -> Tensor:
    """`full` as a matmul for each frequency."""
    y: Tensor = _Full.apply(*_exact(x, w))  # type: ignore[no-untyped-call]
    return y.to(x.dtype)


class _Depthwise(torch.autograd.Function):
    """x [K, B, T, D], w [K, L, D] or [K, L, 1], L ≤ T."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        points = _points(x, w)
        return _back(_transform(x, points) * _transform(w, points).unsqueeze(1), points, x.shape[2])

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (g,) = gradients
        x, w, *_ = ctx.saved_tensors  # type: ignore[attr-defined]
        for_x, for_w = ctx.needs_input_grad  # type: ignore[attr-defined]
        points = _points(x, w)
        of_g = _transform(g, points)
        grad_x = grad_w = None
        if for_x:
            by_x = of_g * _transform(w, points).conj().unsqueeze(1)
            grad_x = _back(by_x, points, x.shape[2])
        if for_w:
            by_w = _for_weights((of_g * _transform(x, points).conj()).sum(1), w)
            grad_w = _back(by_w, points, w.shape[1])
        return grad_x, grad_w


def _for_weights(channels: Tensor, w: Tensor) -> Tensor:
    """The gradient of the weights from that of each channel [..., D, *], summed if the channels share weights."""
    return channels if w.shape[-1] == channels.shape[-2] else channels.sum(-2, keepdim=True)


class _Pairs(torch.autograd.Function):
    """As `_Depthwise`, for even B: two real sequences share a complex transform.

    Z = X_0 + i·X_1 gives Z·W = Y_0 + i·Y_1, and the real part of the inverse of Z̄·G is the sum of those of X̄_0·G_0 and
    X̄_1·G_1. Spectra are [D, pairs, n]; a few pairs at a time fit into the cache.
    """

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, w: Tensor) -> Tensor:
        points, length = _points(x, w), x.shape[2]
        spectra = torch.fft.fft(w.mT.contiguous(), points).unsqueeze(2)  # [K, D or 1, 1, n]
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        for member, rows, padded in _groups(x, spectra):
            z = torch.fft.fft(_paired(x[member, rows], padded)).mul_(spectra[member])
            _part(y[member, rows], torch.fft.ifft(z)[..., :length])
        ctx.save_for_backward(x, w, spectra)
        return y

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        if torch.is_grad_enabled():  # for second derivatives: by operations that have a gradient
            both: tuple[Tensor | None, Tensor | None] = _Depthwise.backward(ctx, *gradients)
            return both
        (g,) = gradients
        x, w, spectra = ctx.saved_tensors  # type: ignore[attr-defined]
        for_x, for_w = ctx.needs_input_grad  # type: ignore[attr-defined]
        length = x.shape[2]
        turned = spectra.conj().resolve_conj()
        grad_x = torch.empty_like(x, memory_format=torch.contiguous_format) if for_x else None
        by_w = spectra.new_zeros(x.shape[0], x.shape[-1], spectra.shape[-1]) if for_w else None
        for member, rows, padded in _groups(x, spectra):
            of_g = torch.fft.fft(_paired(g[member, rows], padded))
            if by_w is not None:  # Z̄ is the inverse transform of z̄, up to the factor
                z = torch.fft.ifft(_paired(x[member, rows], padded, turned=True), norm="forward")
                by_w[member] += z.mul_(of_g).sum(1)
            if grad_x is not None:
                _part(grad_x[member, rows], torch.fft.ifft(of_g.mul_(turned[member]))[..., :length])
        if by_w is None:
            return grad_x, None
        grad_w = torch.fft.ifft(_for_weights(by_w, w)).real[..., : w.shape[1]].mT.contiguous()
        return grad_x, grad_w


def _groups(x: Tensor, spectra: Tensor) -> Iterator[tuple[int, slice, Tensor]]:
    """For each member, slices of a few pairs of texts, with a buffer of zeros [D, pairs, n] to work in."""
    channels, points = x.shape[-1], spectra.shape[-1]
    texts = min(x.shape[1], 2 * max(1, _GROUP // (channels * points)))
    zeros = spectra.new_zeros(channels, texts // 2, points)
    for member in range(x.shape[0]):
        for start in range(0, x.shape[1], texts):
            count = min(texts, x.shape[1] - start)
            yield member, slice(start, start + count), zeros[:, : count // 2]


def _paired(x: Tensor, padded: Tensor, *, turned: bool = False) -> Tensor:
    """x [2·pairs, T, D] as complex numbers, or as their conjugates, in the first T of `padded` [D, pairs, n]."""
    z = torch.complex(x[0::2], x[1::2].neg() if turned else x[1::2])
    channels = z.flatten(0, 1).t().contiguous()  # torch transposes matrices fast
    padded[..., : x.shape[1]] = channels.view(len(channels), *z.shape[:2])
    return padded


def _part(y: Tensor, z: Tensor) -> None:
    """Write complex z [D, pairs, T] to y [2·pairs, T, D]."""
    texts = z.flatten(1).t().contiguous().view(*z.shape[1:], z.shape[0])
    y[0::2], y[1::2] = texts.real, texts.imag


class _Full(torch.autograd.Function):
    """x [K, B, T, D], w [K, L, D, E], L ≤ T. Spectra are [K, F, 2, ...]: frequencies first, with separate real and
    imaginary parts, so that a product of complex matrices is one of real ones. The spectra of w are as large as those
    of many texts and take most of the time; they are kept for the backward pass.
    """

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, w: Tensor) -> Tensor:
        points = Points.of(x.shape[2] + w.shape[1] - 1)
        with torch.autocast(x.device.type, enabled=False):
            spectra = _frequencies(w, points)
            y = _tokens(_times(_frequencies(x.transpose(1, 2), points), spectra), points, x.shape[2])
        ctx.save_for_backward(x, w, spectra)
        return y.transpose(1, 2).contiguous()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (g,) = gradients
        x, w, spectra = ctx.saved_tensors  # type: ignore[attr-defined]
        for_x, for_w = ctx.needs_input_grad  # type: ignore[attr-defined]
        points = Points.of(x.shape[2] + w.shape[1] - 1)
        if torch.is_grad_enabled():  # for second derivatives: saved tensors have no gradient
            spectra = _frequencies(w, points)
        grad_x = grad_w = None
        with torch.autocast(x.device.type, enabled=False):
            of_g = _frequencies(g.transpose(1, 2), points)
            if for_x:
                grad_x = _tokens(_times_adjoint(of_g, spectra), points, x.shape[2]).transpose(1, 2)
            if for_w:
                by_w = _adjoint_times(_frequencies(x.transpose(1, 2), points), of_g)
                grad_w = _tokens(by_w, points, w.shape[1])
        return grad_x, grad_w


def _frequencies(x: Tensor, points: Points) -> Tensor:
    """[K, T, *, D] to [K, F, 2, *, D]."""
    return torch.unflatten(spectrum(x.flatten(2), points), 3, x.shape[2:])


def _tokens(spectra: Tensor, points: Points, length: int) -> Tensor:
    """[K, F, 2, *, D] to [K, T, *, D]."""
    return torch.unflatten(signal(spectra.flatten(3), points, length), 2, spectra.shape[3:])


def _times(x: Tensor, w: Tensor) -> Tensor:
    """X·W: [K, F, 2, B, D] and [K, F, 2, D, E] to [K, F, 2, B, E]."""
    real, imaginary = x.unbind(2)
    rows = torch.cat([torch.cat([real, -imaginary], 3), torch.cat([imaginary, real], 3)], 2)
    return torch.unflatten(_each(rows, w.flatten(2, 3)), 2, (2, -1))


def _times_adjoint(x: Tensor, w: Tensor) -> Tensor:
    """X·W̄ᵀ: [K, F, 2, B, E] and [K, F, 2, D, E] to [K, F, 2, B, D]."""
    products = torch.unflatten(torch.unflatten(_each(x.flatten(2, 3), w.flatten(2, 3).mT), 3, (2, -1)), 2, (2, -1))
    (both_real, mixed), (other, both_imaginary) = (part.unbind(3) for part in products.unbind(2))
    return torch.stack([both_real + both_imaginary, other - mixed], 2)


def _adjoint_times(x: Tensor, y: Tensor) -> Tensor:
    """X̄ᵀ·Y: [K, F, 2, B, D] and [K, F, 2, B, E] to [K, F, 2, D, E]."""
    real, imaginary = x.unbind(2)
    columns = torch.cat([torch.cat([real, imaginary], 2), torch.cat([-imaginary, real], 2)], 3)
    return torch.unflatten(_each(columns.mT, y.flatten(2, 3)), 2, (2, -1))


def _each(x: Tensor, y: Tensor) -> Tensor:
    """A product for each member and frequency."""
    return torch.unflatten(product(x.flatten(0, 1), y.flatten(0, 1)), 0, x.shape[:2])


def _exact(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Both in one dtype that transforms support (half precision becomes float32); w without the lags beyond T."""
    dtype = torch.promote_types(torch.promote_types(x.dtype, w.dtype), torch.float32)
    return x.to(dtype), w[:, : x.shape[2]].to(dtype)


def _points(x: Tensor, w: Tensor) -> int:
    """n, the number of points, large enough that the convolution is not circular."""
    return fast_length(x.shape[2] + w.shape[1] - 1)


def _transform(x: Tensor, points: int) -> Tensor:
    """[..., T, D] to [..., D, F]. Tokens are moved to the last, contiguous axis: strided transforms are slower."""
    spectra: Tensor = torch.fft.rfft(x.mT.contiguous(), points)
    return spectra


def _back(spectra: Tensor, points: int, length: int) -> Tensor:
    """[..., D, F] to [..., T, D]."""
    y: Tensor = torch.fft.irfft(spectra, points)
    return y[..., :length].mT.contiguous()

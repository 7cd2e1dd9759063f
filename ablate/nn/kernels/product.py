"""The matmul of packs, [K, N, I] times [K, I, O]: `torch.bmm`, by way of oneDNN where that is faster.

For float32 on a CPU torch takes the product from MKL, which on processors that are not Intel's uses half of their
vector width; oneDNN uses all of it (2.2 times faster on AMD Zen 5, whose units are as wide; as fast on Zen 4, whose
units have half the width) and ships in the same torch. Each process measures once which one is faster. torch calls
oneDNN only if rounding to bfloat16 inside is allowed. On a processor with AVX-512 but without units for bfloat16 (AMX)
oneDNN computes in float32 all the same; elsewhere, and where a test product shows rounding, it is not used.

Products of many chunks with one matrix have gradients that are summed in one place. Autograd allocates a gradient of
the matrix for each product and adds it to the previous ones. For the matrix of a head over a large vocabulary that is a
second tensor of the matrix's size. Here each product adds its gradient to the sum in the same operation (`z + x·y` in
place of z), and a node between the parameter and all products passes the sum on.

    sums = GradientSums()
    for chunk in chunks:
        with sums.active():
            y = summed_product(chunk, matrix)

Shapes: K pack, N rows, I inputs, O outputs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch
from torch import Tensor

_LEAST = 1 << 20
"""Number of multiplications below which calling oneDNN takes longer than the product."""
_ROUNDING = 1e-5
"""A relative error above this shows that the factors of a float32 matmul were rounded; with bfloat16 it is 1e-2."""
_FASTER = 1.5
"""Ratio of MKL's time to oneDNN's from which oneDNN is used. It is about 1 or about 2, so the choice is stable."""


def product(x: Tensor, weight: Tensor) -> Tensor:
    """x·W, one W for each member: [K, N, I] and [K, I, O] to [K, N, O]."""
    if torch.is_autocast_enabled("cpu") or not _by_onednn(x, weight):
        return torch.bmm(x, weight)
    y: Tensor = _Product.apply(x, weight)  # type: ignore[no-untyped-call]
    return y


def multiply(x: Tensor, y: Tensor) -> Tensor:
    """`product` inside a kernel: without gradient, and with autocast off."""
    return _fast(x, y) if _by_onednn(x, y) else torch.bmm(x, y)


def add_product(z: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """z + x·y written into z, [K, N, O]; as `multiply`."""
    return _fast(x, y, z) if _by_onednn(x, y) else z.baddbmm_(x, y)


class _Product(torch.autograd.Function):
    """The product with its gradients, which are products again: dX = dY·Wᵀ, dW = Xᵀ·dY."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return multiply(x, weight)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (gradient,) = gradients
        x, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        for_x, for_weight = ctx.needs_input_grad  # type: ignore[attr-defined]
        return (
            product(gradient, weight.mT) if for_x else None,
            product(x.mT, gradient) if for_weight else None,
        )


def _by_onednn(x: Tensor, y: Tensor) -> bool:
    return (
        not torch.compiler.is_compiling()  # a compiler chooses its own product, and cannot trace the permission
        and x.device.type == "cpu"
        and x.dtype == y.dtype == torch.float32
        and x.numel() * y.shape[2] >= _LEAST
        and onednn_is_faster()
    )


def _fast(x: Tensor, y: Tensor, z: Tensor | None = None) -> Tensor:
    """x·y by oneDNN, or z + x·y written into z."""
    with onednn_allowed():
        return torch.bmm(x, y) if z is None else z.baddbmm_(x, y)


@contextmanager
def onednn_allowed() -> Iterator[None]:
    """Context manager: torch computes products in the body by oneDNN. Use it only if `onednn_is_exact`."""
    settings = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = settings.fp32_precision
    settings.fp32_precision = "bf16"
    try:
        yield
    finally:
        # An inherited setting cannot be told from an explicit one; writing it back would end the inheritance.
        inherited = before == torch.backends.mkldnn.fp32_precision
        settings.fp32_precision = "none" if inherited else before


@cache
def onednn_is_exact() -> bool:
    """Whether oneDNN computes in float32 although rounding is allowed."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or torch.cpu._is_amx_tile_supported():
        return False
    with torch.inference_mode(), torch.autocast("cpu", enabled=False):  # whatever the first caller is doing
        generator = torch.Generator().manual_seed(0)
        x, y = torch.randn(2, 4, 128, 128, generator=generator, dtype=torch.float32, device="cpu")
        exact = x.double() @ y.double()
        return bool(((_fast(x, y) - exact).norm() / exact.norm()) < _ROUNDING)


@cache
def onednn_is_faster() -> bool:
    """Whether oneDNN computes in float32, and much faster than MKL; measured once in 10 ms."""
    if not onednn_is_exact():
        return False
    with torch.inference_mode(), torch.autocast("cpu", enabled=False):
        x = torch.ones(1, 256, 256, dtype=torch.float32, device="cpu")
        taken: dict[bool, float] = {}
        for turn in range(8):  # in turns, so that other load affects both; the first ones find caches cold
            for by_onednn in (False, True):
                begin = time.thread_time()
                if by_onednn:
                    _fast(x, x)
                else:
                    torch.bmm(x, x)
                seconds = time.thread_time() - begin
                taken[by_onednn] = min(taken.get(by_onednn, seconds), seconds) if turn else seconds
    return taken[False] > _FASTER * taken[True]


_active: ContextVar[GradientSums | None] = ContextVar("active_sums", default=None)


class GradientSums:
    """Sums of the gradients of matrices over the products within `active`. A graph allows one backward pass."""

    def __init__(self) -> None:
        self._shared: dict[int, tuple[Tensor, Tensor, _Sum]] = {}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Context manager: products with a matrix in the body add to its sum."""
        token = _active.set(self)
        try:
            yield
        finally:
            _active.reset(token)

    def of(self, matrix: Tensor) -> tuple[Tensor, _Sum]:
        """The tensor that all products with the matrix share, and its sum."""
        if id(matrix) not in self._shared:
            total = _Sum()
            shared: Tensor = _Shared.apply(matrix, total)  # type: ignore[no-untyped-call]
            self._shared[id(matrix)] = matrix, shared, total  # a reference to the matrix, so that its id is not reused
        _, shared, total = self._shared[id(matrix)]
        return shared, total


def summed_product(x: Tensor, matrix: Tensor, *, transposed: bool = False) -> Tensor:
    """x·W as `product`, [K, N, I] to [K, N, O]; within `GradientSums.active` the gradient of W is summed.

    Args:
        matrix: W, [K, I, O]; or Wᵀ, [K, O, I].
        transposed: Whether it is Wᵀ.
    """
    sums = _active.get()
    if sums is None or not _sums_here(x, matrix):
        return product(x, matrix.mT if transposed else matrix)
    shared, total = sums.of(matrix)
    y: Tensor = _SummedProduct.apply(x, shared, total, transposed)  # type: ignore[no-untyped-call]
    return y


def _sums_here(x: Tensor, matrix: Tensor) -> bool:
    """Whether the gradient is one product in the precision of the matrix; autocast rounds its factors."""
    return x.dtype == matrix.dtype and matrix.requires_grad and not torch.is_autocast_enabled(x.device.type)


class _Sum:
    """A gradient to which products add; None before the first."""

    def __init__(self) -> None:
        self.value: Tensor | None = None

    def add(self, x: Tensor, y: Tensor) -> None:
        self.value = multiply(x, y) if self.value is None else add_product(self.value, x, y)


class _Shared(torch.autograd.Function):
    """The matrix itself. Its gradient is the sum, which is complete when autograd has visited all products."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, matrix: Tensor, total: _Sum) -> Tensor:
        ctx.total = total  # type: ignore[attr-defined]
        ctx.set_materialize_grads(False)
        return matrix.view_as(matrix)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor | None) -> tuple[Tensor | None, None]:
        total: _Sum = ctx.total  # type: ignore[attr-defined]
        value, total.value = total.value, None
        return value, None


class _SummedProduct(torch.autograd.Function):
    """The product; the gradient of the matrix is added to its sum, not returned to autograd."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, x: Tensor, matrix: Tensor, total: _Sum, transposed: bool
    ) -> Tensor:
        ctx.save_for_backward(x, matrix)
        ctx.total, ctx.transposed = total, transposed  # type: ignore[attr-defined]
        return multiply(x, matrix.mT if transposed else matrix)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor
    ) -> tuple[Tensor | None, None, None, None]:
        (gradient,) = gradients
        x, matrix = ctx.saved_tensors  # type: ignore[attr-defined]
        transposed: bool = ctx.transposed  # type: ignore[attr-defined]
        total: _Sum = ctx.total  # type: ignore[attr-defined]
        if transposed:
            total.add(gradient.mT, x)
        else:
            total.add(x.mT, gradient)
        for_x = multiply(gradient, matrix if transposed else matrix.mT) if ctx.needs_input_grad[0] else None  # type: ignore[attr-defined]
        return for_x, None, None, None

"""Products of many chunks with one matrix whose gradients are summed in one place.

Autograd allocates a gradient of the matrix for each product and adds it to the previous ones. For the matrix of a head
over a large vocabulary that is a second tensor of the matrix's size. Here each product adds its gradient to the sum in
the same operation (`z + x·y` in place of z), and a node between the parameter and all products passes the sum on.

    sums = GradientSums()
    for chunk in chunks:
        with sums.active():
            y = summed_product(chunk, matrix)

Shapes: K pack, N rows, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from ablate.nn.kernels.product import add_product, multiply, product

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
        x: The rows.
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

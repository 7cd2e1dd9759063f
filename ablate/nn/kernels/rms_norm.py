"""RMSNorm with its gain as one operation that keeps only the normalised input; torch's keeps the input too.

y = x̂·g, x̂ = x·r, r = 1/√(mean x² + ε). With h = ∂L/∂y·g the gradients are ∂L/∂x = r·(h - x̂·mean(h·x̂)) and
∂L/∂g = Σ ∂L/∂y·x̂ over the rows (arXiv:1910.07467, eq. 9).

Shapes: K pack, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def along(values: Tensor, x: Tensor) -> Tensor:
    """[K, D] shaped to broadcast over x [K, ..., D]."""
    return values.view(values.shape[0], *[1] * (x.dim() - 2), values.shape[1])


def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """[K, ..., D] and gains [K, D] to the same shape as x."""
    gains = along(gain, x)
    if x.dtype != gain.dtype:
        return F.rms_norm(x, x.shape[-1:], eps=eps) * gains
    if x.device.type != "cpu" or torch.compiler.is_compiling():  # a GPU has a fused kernel, and a compiler makes one
        alone = len(gain) == 1
        return F.rms_norm(x, x.shape[-1:], gain[0], eps) if alone else F.rms_norm(x, x.shape[-1:], eps=eps) * gains
    y: Tensor = _RMSNorm.apply(x, gains, eps)  # type: ignore[no-untyped-call]
    return y


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        root = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        inverse = root.square_().mul_(1 / x.shape[-1]).add_(eps).rsqrt_()
        normed = x * inverse
        ctx.save_for_backward(normed, inverse, gain)
        y: Tensor = normed * gain
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor
    ) -> tuple[Tensor | None, Tensor | None, None]:
        normed, inverse, gain = ctx.saved_tensors  # type: ignore[attr-defined]
        by_x, by_gain = ctx.needs_input_grad[:2]  # type: ignore[attr-defined]
        (gradient,) = gradients
        products = gradient * normed
        for_gain = products.flatten(1, -2).sum(1).view(gain.shape) if by_gain else None
        if not by_x:
            return None, for_gain, None
        mean = products.mul_(gain).sum(-1, keepdim=True).mul_(-1 / normed.shape[-1])
        return (gradient * gain).addcmul_(normed, mean).mul_(inverse), for_gain, None

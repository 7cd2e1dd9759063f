"""softmax(Q·Kᵀ·scale + mask)·V by torch's fused kernel; for long texts on a CPU its products are computed by oneDNN.

A fused kernel keeps no matrix. Where attention is observed, the matrix is computed in addition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.nn.kernels.product import onednn_allowed, onednn_is_faster

_LEAST = 1024
"""Tokens from which oneDNN is faster (1.3 to 1.8 times forward and backward, head widths 16 to 64, on a Zen 5)."""


Observe = Callable[[Tensor, Tensor], None]
"""Called with logits, -∞ where a key is hidden, and with weights: [..., H, T, S] each, without gradient."""

_observe: ContextVar[Observe | None] = ContextVar("observe", default=None)


@contextmanager
def observing_attention(observe: Observe) -> Iterator[None]:
    """Context manager: every attention matrix of the body is passed to `observe`."""
    token = _observe.set(observe)
    try:
        yield
    finally:
        _observe.reset(token)


def observes_attention() -> bool:
    """Whether attention matrices are asked for."""
    return _observe.get() is not None


def observed_attention(logits: Tensor, weights: Tensor) -> None:
    """Pass an attention matrix to whoever observes attention; otherwise nothing happens."""
    if (observe := _observe.get()) is not None:
        observe(logits.detach(), weights.detach())


@torch.no_grad()
def _observe_heads(q: Tensor, k: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None) -> None:
    """The matrix of what `attend` computes without one."""
    logits = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        mask = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
    if mask is not None:
        logits = logits.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else logits + mask
    observed_attention(logits, logits.softmax(-1))


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """`F.scaled_dot_product_attention`: q [B, H, T, d], k [B, H, S, d] and v [B, H, S, e] to [B, H, T, e].

    The fused kernels need d = e: where they differ, the narrower tensors are zero-padded.

    Args:
        dropout: The probability with which a weight is 0, with noise of torch's default generator.
    """
    if observes_attention():
        _observe_heads(q, k, mask, is_causal, scale)
    return _attend(q, k, v, mask, is_causal, scale, dropout)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None, dropout: float
) -> Tensor:
    if q.shape[3] != v.shape[3]:
        width, scale = v.shape[3], q.shape[3] ** -0.5 if scale is None else scale
        widest = max(q.shape[3], width)
        q, k, v = (F.pad(x, (0, widest - x.shape[3])) if x.shape[3] < widest else x for x in (q, k, v))
        return _attend(q, k, v, mask, is_causal, scale, dropout)[..., :width]
    long = (
        mask is None
        and not dropout
        and min(q.shape[2], k.shape[2]) >= _LEAST
        and q.device.type == "cpu"
        and q.dtype == k.dtype == v.dtype == torch.float32
        and q.shape[:2] == k.shape[:2] == v.shape[:2]
        and q.shape[3] == k.shape[3] == v.shape[3]
        and all(x.stride(-1) == 1 for x in (q, k, v))
        and not torch.is_autocast_enabled("cpu")
        and onednn_is_faster()
    )
    if not long:
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, scale=scale)
    y: Tensor = _Long.apply(q, k, v, is_causal, scale)  # type: ignore[no-untyped-call]
    return y


class _Long(torch.autograd.Function):
    """The kernel that SDPA uses for these inputs, called directly so that its backward pass can use oneDNN too."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float | None
    ) -> Tensor:
        with onednn_allowed():
            y, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, is_causal, scale=scale)
        ctx.save_for_backward(q, k, v, y, sums)
        ctx.how = (is_causal, scale)  # type: ignore[attr-defined]
        return y  # type: ignore[no-any-return]

    @staticmethod
    @torch.autograd.function.once_differentiable  # as torch's own
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, y, sums = ctx.saved_tensors  # type: ignore[attr-defined]
        is_causal, scale = ctx.how  # type: ignore[attr-defined]
        backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        with onednn_allowed():
            by_q, by_k, by_v = backward(*gradients, q, k, v, y, sums, 0.0, is_causal, scale=scale)
        return by_q, by_k, by_v, None, None

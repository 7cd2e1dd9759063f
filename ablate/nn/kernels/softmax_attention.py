"""softmax(Q·Kᵀ·scale + mask)·V by torch's fused kernel; for long texts on a CPU its products are computed by oneDNN.

A fused kernel keeps no matrix. Where attention is observed, the matrix is computed in addition.

Positions inside attention are rotary embeddings of queries and keys, and biases of the logits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

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


_SPREAD = 1 << 18
"""Largest table, in numbers, that is kept expanded over heads."""

Frequencies = Callable[[Tensor], Tensor]
"""Maps the frequencies [r/2] of the pairs of a head to scaled ones."""


def rotate(
    x: Tensor,
    first: int = 0,
    base: float = 10000.0,
    *,
    turning: int | None = None,
    scaled: Frequencies | None = None,
    factor: float = 1.0,
) -> Tensor:
    """Rotary embedding (arXiv:2104.09864): pair (i, i + r/2) at position t is rotated by t·base^(-2i/r).

    Args:
        x: Queries or keys [..., T, d].
        first: Position of the first of them.
        turning: r, even: the first r channels are rotated, the others unchanged. None: all d.
        scaled: Scales the frequencies, which it gets in single precision at least.
        factor: Multiplies the rotated channels.

    Returns:
        The same shape; products of rotated queries and keys depend only on the distance of their positions.
    """
    length, width = x.shape[-2], x.shape[-1] if turning is None else turning
    if x.device.type == "cpu" and scaled is None and factor == 1.0 and not torch.compiler.is_compiling():
        # Heads are split from the width, so that in memory they come after the tokens: operations on [T, H, r] access
        # memory sequentially, unless the tables must be expanded over heads.
        heads = x.shape[-3] if x.dim() > 2 else 1
        tables = _kept_tables(first, length, base, width, heads if length * heads * width <= _SPREAD else 1, x.dtype)
        turning_part = x if width == x.shape[-1] else x[..., :width]
        tokens_first = turning_part.transpose(-3, -2) if x.dim() > 2 else turning_part.unsqueeze(-2)
        y: Tensor = _Rotation.apply(tokens_first, *tables)  # type: ignore[no-untyped-call]
        turned = y.transpose(-3, -2) if x.dim() > 2 else y.squeeze(-2)
        return turned if width == x.shape[-1] else torch.cat([turned, x[..., width:]], -1)
    cos, sin = _tables(first, length, base, width, x.dtype, x.device, scaled, factor)
    left, right = x[..., : width // 2], x[..., width // 2 : width]
    halves = [left * cos - right * sin, left * sin + right * cos]
    return torch.cat([*halves, x[..., width:]] if width < x.shape[-1] else halves, -1)


def _tables(
    first: int,
    length: int,
    base: float,
    width: int,
    dtype: torch.dtype,
    device: torch.device,
    scaled: Frequencies | None = None,
    factor: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angles of all pairs, [T, r/2]; the arguments are those of `rotate`."""
    exact = torch.promote_types(dtype, torch.float32)  # half precision cannot count the positions
    pair = torch.arange(width // 2, device=device, dtype=exact)
    position = torch.arange(first, first + length, device=device, dtype=exact)
    frequency = base ** (-2.0 * pair / width)
    angle = position[:, None] * (frequency if scaled is None else scaled(frequency))
    cos, sin = angle.cos(), angle.sin()
    if factor != 1.0:
        cos, sin = cos * factor, sin * factor
    return cos.to(dtype), sin.to(dtype)


@lru_cache(maxsize=16)
def _kept_tables(
    first: int, length: int, base: float, width: int, heads: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """For `_Rotation`: cosines of both channels of a pair, and sines with their signs, [T, H, r] on the CPU."""
    with torch.inference_mode(False), torch.no_grad():
        cos, sin = _tables(first, length, base, width, dtype, torch.device("cpu"))
        tables = torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)
        return tuple(table[:, None].expand(-1, heads, -1).contiguous() for table in tables)  # type: ignore[return-value]


class _Rotation(torch.autograd.Function):
    """x·cos + (x with its halves exchanged)·sin for x [..., T, H, r]; the gradient is the inverse rotation."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors  # type: ignore[attr-defined]
        (g,) = gradients
        return torch.addcmul(g * cos, g.roll(g.shape[-1] // 2, -1), sin, value=-1), None, None


def alibi_bias(
    heads: int, length: int, device: torch.device, dtype: torch.dtype, first: int = 0, *, bloom: bool = False
) -> Tensor:
    """ALiBi (arXiv:2108.12409): -m_h·|i - j| with the slopes m_h = 2^(-8h/H), h = 1 ... H.

    [H, T, T] for a `length` of T, or the rows from i = `first` on. Tensors are made on the device: none can be moved to
    it within a CUDA graph.

    Args:
        bloom: As in the released code of ALiBi and in Bloom, the first n = 2^⌊log2 H⌋ heads have the slopes of n heads,
            and the others every second slope of 2n heads. For a power of two both are the same.
    """
    exact = torch.promote_types(dtype, torch.float32)
    head = torch.arange(1, heads + 1, device=device, dtype=torch.float64 if bloom else exact)
    if bloom:
        power = 1 << (heads.bit_length() - 1)
        slope = (2.0 ** -torch.where(head <= power, 8 * head, 4 * (2 * (head - power) - 1)).div(power)).to(exact)
    else:
        slope = 2.0 ** (-8.0 * head / heads)
    position = torch.arange(length, device=device, dtype=exact)
    return (-slope[:, None, None] * (position[first:, None] - position[None, :]).abs()).to(dtype)


def distance_buckets(
    rows: int, length: int, device: torch.device, *, first: int, buckets: int, longest: int, causal: bool
) -> Tensor:
    """T5's buckets (arXiv:1910.10683, section 2.1) of the distances j - i, [rows, length].

    Half of the buckets are for earlier tokens (all of them in causal attention). Of those, half hold one distance each,
    and the others ranges that grow geometrically up to `longest`; all greater distances share the last bucket.

    Args:
        rows: Queries, at the positions from `first` on.
        length: Keys, at the positions from 0 on.
        first: Position of the first query.
        buckets: Number of buckets.
        longest: The distance from which all share one bucket.
        causal: Whether the future is hidden; its distances then count as 0.
    """
    query = torch.arange(first, first + rows, device=device)
    distance = torch.arange(length, device=device) - query[:, None]
    start = torch.zeros_like(distance)
    if causal:
        distance = (-distance).clamp(min=0)
    else:
        buckets //= 2
        start = (distance > 0) * buckets
        distance = distance.abs()
    exact = buckets // 2
    # In single precision, as T5's own weights were trained.
    far = (distance.clamp(min=1).float() / exact).log() / math.log(longest / exact) * (buckets - exact)
    return start + torch.where(distance < exact, distance, (exact + far.long()).clamp(max=buckets - 1))

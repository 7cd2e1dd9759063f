"""Attention without softmax, in linear time: y_t = q_t·S, S = Σ_s k_sᵀ·v_s over all s or over s ≤ t.

With decay the state is a recurrence, S_t = diag(e^(g_t))·S_{t-1} + k_tᵀ·v_t with log decay g_t ≤ 0 (one for each head,
or one for each channel of the keys); token i then reads token j ≤ i with the weight e^(g_{j+1} + ... + g_i). Divided by
the same sum with all values 1, the state gives φ-attention: y_t = φ(q_t)·Σ φ(k_s)ᵀ·v_s / (φ(q_t)·Σ φ(k_s)ᵀ).

Every form is computed in chunks: memory is linear in T, and all decays are differences of logarithms taken forwards in
time, so that no exponential exceeds 1, however strong the decay.

Shapes: any leading axes, then T tokens and d width of the keys, e width of the values.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from ablate.nn.kernels.chunked import chunked, segments
from ablate.nn.kernels.fading import fading


def bidirectional(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Q·(KᵀV): [..., T, d], [..., T, d], [..., T, e] to [..., T, e]."""
    return q @ (k.mT @ v)


def causal(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None = None, chunk: int | None = None) -> Tensor:
    """((QKᵀ) ∘ decay ∘ tril)·V in chunks: the state before each chunk, plus the masked square inside it.

    Args:
        q: [..., T, d].
        k: [..., T, d].
        v: [..., T, e].
        log_decay: g ≤ 0, [..., T, 1] (one for each head) or [..., T, d]; None for no decay.
        chunk: Tokens in a chunk, a power of two; memory is linear in T for any. Default: as wide as the state.

    Returns:
        [..., T, e].
    """
    chunk = _no_longer(chunk or _usual_chunk(q.shape[-1], v.shape[-1]), q.shape[-2])
    dtype = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)  # they differ under autocast
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if log_decay is None or (log_decay.shape[-1] == 1 and not log_decay.requires_grad):
        return chunked(q, k, v, log_decay, chunk)
    return fading(q, k, v, log_decay.expand(*q.shape[:-1], log_decay.shape[-1]), chunk)


def _usual_chunk(d: int, e: int) -> int:
    return 64 if max(d, e) >= 64 else 32


def kept_activations(
    length: int, d: int, e: int, decay: Literal["none", "head", "trained_head", "channel"] = "none"
) -> int:
    """Number of scalars that `causal` keeps for the backward pass over one sequence and head, including q, k and v.

    With `trained_head` and `channel` the decay has a gradient, with `head` it has none.
    """
    chunk = _no_longer(_usual_chunk(d, e), length)
    if decay in ("none", "head"):
        return length * (2 * d + e) + (segments(length, d, chunk) - 1) * d * e
    return length * (2 * d + e + (1 if decay == "trained_head" else d))


def attend(
    q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, real: Tensor | None = None, log_decay: Tensor | None = None
) -> Tensor:
    """φ-attention from features: numerator and denominator are one sum, with a value of 1 appended to the values.

    Args:
        q: φ(q), [..., T, m].
        k: φ(k), [..., T, m].
        v: [..., T, e].
        is_causal: Whether token t sees only s ≤ t.
        real: [..., T], True where a token is not padding; padding is in no sum.
        log_decay: [..., T, 1]; causal only.

    Returns:
        [..., T, e]; 0 where a token sees no real one.
    """
    if real is not None:
        k = k.masked_fill(~real.unsqueeze(-1), 0.0)
    v = torch.cat([v, v.new_ones(1).expand(*v.shape[:-1], 1)], -1)
    y = causal(q, k, v, log_decay) if is_causal else bidirectional(q, k, v)
    return _quotient(y)


def _quotient(y: Tensor) -> Tensor:
    """[..., e + 1] to [..., e]: numerators over the denominator, the last entry; 0 where that is (almost) 0.

    The gradient divides by the denominator too; below the smallest normal number its inverse would overflow.
    """
    quotient: Tensor = _Quotient.apply(y)  # type: ignore[no-untyped-call]
    return quotient


class _Quotient(torch.autograd.Function):
    """z = y/t keeps z and 1/t: ∂L/∂y = g/t, ∂L/∂t = -g·z/t."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, y: Tensor) -> Tensor:
        total = y[..., -1:]
        nothing = total.abs() <= torch.finfo(total.dtype).tiny / torch.finfo(total.dtype).eps
        # In single precision at least: a rounded inverse would be wrong for all entries alike.
        inverse = total.to(torch.promote_types(y.dtype, torch.float32)).reciprocal().masked_fill_(nothing, 0.0)
        z = (y[..., :-1] * inverse).to(y.dtype)
        ctx.save_for_backward(z, inverse)
        return z

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> Tensor:
        z, inverse = ctx.saved_tensors  # type: ignore[attr-defined]
        (g,) = gradients
        return torch.cat([g * inverse, (g * z).sum(-1, keepdim=True) * -inverse], -1).to(g.dtype)


def attend_from_logs(log_q: Tensor, log_k: Tensor, v: Tensor, *, is_causal: bool, real: Tensor | None = None) -> Tensor:
    """`attend` for positive features given by their logarithms, so that the features may overflow or underflow.

    Subtracting a constant from all log φ(q_t) of one token, or from all log φ(k_s) of one sum, does not change the
    quotient. Bidirectional: the largest value of feature m over all keys is subtracted from the keys and added to
    feature m of the queries; then the largest feature of each query is subtracted from it. So the denominator is at
    least 1. Causal: the largest feature of each query is subtracted from it, and the largest feature of all keys so
    far, c_t, from the keys; when c_t grows the state is rescaled by e^(c_{t-1} - c_t), which is a decay for each head.
    So not even the rounding at position t depends on later tokens. The denominator may then underflow: where the
    features of a query and of all keys so far are that far apart, the output is 0 and has no gradient.
    """
    if real is not None:
        log_k = log_k.masked_fill(~real.unsqueeze(-1), -math.inf)
    largest = log_k.detach()
    largest = largest.amax(-1, keepdim=True).cummax(-2).values if is_causal else largest.amax(-2, keepdim=True)
    top = largest.masked_fill(largest == -math.inf, 0.0)  # where no token is real
    log_decay = None
    if is_causal:
        # Before the first real token the state is 0, and no factor matters.
        log_decay = torch.nan_to_num(largest.diff(dim=-2, prepend=largest[..., :1, :]).neg(), nan=0.0, neginf=0.0)
    else:
        log_q = log_q + top
    q = (log_q - log_q.detach().amax(-1, keepdim=True)).exp()
    return attend(q, (log_k - top).exp(), v, is_causal=is_causal, log_decay=log_decay)


def recur(
    q: Tensor, k: Tensor, v: Tensor, state: Tensor | None, log_decay: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """One more token of `causal`: y = q·S with S = e^g ∘ S + kᵀ·v.

    Args:
        q: [..., 1, d].
        k: [..., 1, d].
        v: [..., 1, e].
        state: S after the tokens before, [..., d, e]; None if there are none.
        log_decay: g, [..., 1, 1] or [..., 1, d]; None for no decay.

    Returns:
        [..., 1, e], and S.
    """
    added = k.mT @ v
    if state is not None:
        added = added + (state if log_decay is None else state * log_decay.exp().mT)
    return q @ added, added


def recur_attend(
    q: Tensor, k: Tensor, v: Tensor, state: tuple[Tensor, ...], *, logarithmic: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One more token of causal `attend`, or of `attend_from_logs` if q and k are logarithms.

    Returns:
        [..., 1, e], and the state: S with the sum of keys, and the largest logarithm so far.
    """
    decay: Tensor | None = None
    kept: tuple[Tensor, ...] = ()
    if logarithmic:
        top = k.amax(-1, keepdim=True)
        if state:
            top = torch.maximum(top, state[1])
            decay = state[1] - top
        q, k, kept = (q - q.amax(-1, keepdim=True)).exp(), (k - top).exp(), (top,)
    v = torch.cat([v, v.new_ones(1).expand(*v.shape[:-1], 1)], -1)
    y, summed = recur(q, k, v, state[0] if state else None, decay)
    return _quotient(y), (summed, *kept)


def _no_longer(chunk: int, length: int) -> int:
    """The chunk, or the smallest power of two that holds all tokens."""
    return min(chunk, 1 << (length - 1).bit_length())

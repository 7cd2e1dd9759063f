"""Attention without softmax, in linear time: y_t = q_t·S, S = Σ_s k_sᵀ·v_s over all s or over s ≤ t.

With decay the state is a recurrence, S_t = diag(e^(g_t))·S_{t-1} + k_tᵀ·v_t with log decay g_t ≤ 0 (one for each head,
or one for each channel of the keys); token i then reads token j ≤ i with the weight e^(g_{j+1} + ... + g_i). Divided by
the same sum with all values 1, the state gives φ-attention: y_t = φ(q_t)·Σ φ(k_s)ᵀ·v_s / (φ(q_t)·Σ φ(k_s)ᵀ).

Every form is computed in chunks: memory is linear in T, and all decays are differences of logarithms taken forwards in
time, so that no exponential exceeds 1, however strong the decay.

`fading` has trained decays: S_t = diag(α_t)·S_{t-1} + k_tᵀ·v_t, y_t = q_t·S_t. In a chunk, each half reads the half
before it, at every scale: token i of the right half reads token j of the left one with the weight Π_{j<t≤i} α_t = (Π of
α after j, to the end of the left half)·(Π of α from the start of the right half to i). From one scale to the next these
products are multiplied by the decay of a whole half: queries of the right half by the decay of the left half, keys of
the left half by that of the right half. So every factor is a product of decays, at most 1, however strong the decay,
and no token's numbers depend on later tokens. The state is passed from chunk to chunk.

The gradients of q, k and v are computed in the same way, from the largest scale to the smallest. The logarithm g of a
decay has the gradient ∂L/∂g_t = Σ_{s≥t} (q_s ∘ ∂L/∂q_s - k_s ∘ ∂L/∂k_s), because y depends only on q_s·e^G_s and
k_s·e^(-G_s), G_s = g_1 + ... + g_s (Gated Linear Attention, arXiv:2312.06635, appendix C).

Shapes: any leading axes, then T tokens in n chunks of C, d width of the keys, e width of the values, w the width of the
decays: d, or 1 for one decay of all channels. At a scale of c tokens a chunk is C/(2c) pairs of halves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.nn.kernels.chunked import chunked, segments
from ablate.nn.kernels.processor import second_level_cache


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


_TOGETHER = second_level_cache() // 16
"""Approximate size of the queries that are processed at once on a CPU, in numbers."""


def fading(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, chunk: int) -> Tensor:
    """y_i = Σ_{j≤i} (q_i ∘ e^(g_{j+1} + ... + g_i))·k_j·v_j.

    Args:
        q: [..., T, d].
        k: [..., T, d].
        v: [..., T, e].
        log_decay: g ≤ 0, [..., T, w].
        chunk: C, a power of two.

    Returns:
        [..., T, e].
    """
    if torch.compiler.is_compiling():
        return _read(q, k, v, log_decay, chunk=chunk)
    y: Tensor = _Fading.apply(q, k, v, log_decay, chunk)  # type: ignore[no-untyped-call]
    return y


class _Fading(torch.autograd.Function):
    """Keeps only its inputs for the backward pass."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, chunk: int
    ) -> Tensor:
        ctx.save_for_backward(q, k, v, log_decay)
        ctx.chunk = chunk  # type: ignore[attr-defined]
        y = torch.empty_like(v, memory_format=torch.contiguous_format)
        for some in _groups(q):
            _texts(y)[some] = _read(*(_texts(x)[some] for x in (q, k, v, log_decay)), chunk=chunk)
        return y

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, log_decay = ctx.saved_tensors  # type: ignore[attr-defined]
        chunk: int = ctx.chunk  # type: ignore[attr-defined]
        (g,) = gradients
        inputs = (q, k, v, log_decay)
        if not torch.is_grad_enabled():
            made = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in inputs]
            for some in _groups(q):
                found = _gradients(*(_texts(x)[some] for x in (*inputs, g)), chunk=chunk)
                for gradient, part in zip(made, found, strict=True):
                    _texts(gradient)[some] = part
            return (*made, None)
        # For second derivatives.
        needed = [x for x in inputs if x.requires_grad]
        slopes = iter(torch.autograd.grad(_read(q, k, v, log_decay, chunk=chunk), needed, g, create_graph=True))
        return (*(next(slopes) if x.requires_grad else None for x in inputs), None)


def _groups(q: Tensor) -> Iterator[slice]:
    """Slices of a few texts on a CPU, which stay in the cache and need little memory; elsewhere one slice of all."""
    texts, *size = _texts(q).shape
    together = max(1, _TOGETHER // math.prod(size)) if q.device.type == "cpu" else texts
    for first in range(0, texts, together):
        yield slice(first, first + together)


def _texts(x: Tensor) -> Tensor:
    """[..., H, T, w] to [texts, H, T, w], which shares memory."""
    return x.flatten(0, -4) if x.dim() > 3 else x.view(1, *[1] * (3 - x.dim()), *x.shape)


@dataclass(frozen=True, slots=True)
class _Scale:
    """Halves of c tokens; the right half reads the left one with the weights q·kᵀ.

    Attributes:
        q: Queries of the right halves with the decay from the start of their half, [..., n, C/(2c), c, d].
        k: Keys of the left halves with the decay to the end of their half, the same.
        left: Decay of the left halves, [..., n, C/(2c), 1, w].
        right: Decay of the right halves, the same.
    """

    q: Tensor
    k: Tensor
    left: Tensor
    right: Tensor


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Chunks of tokens, and the decayed queries and keys with which they read each other.

    Attributes:
        scales: From halves of one token to halves of C/2, each with c.
        q: Queries with the decay from the start of the chunk, [..., n, C, d].
        k: Keys with the decay to the end of the chunk, the same.
        whole: Decay of each chunk, [..., n, w].
    """

    scales: list[tuple[_Scale, int]]
    q: Tensor
    k: Tensor
    whole: Tensor

    @classmethod
    def of(cls, q: Tensor, k: Tensor, decay: Tensor) -> _Chunks:
        """Chunks [..., n, C, d or w], the decays themselves instead of their logarithms."""
        whole = decay
        grown_q, grown_k = q * decay, k.to(torch.promote_types(k.dtype, decay.dtype))
        scales = []
        size = 1
        while size < q.shape[-2]:
            left_q, right_q = _halves(grown_q, size)
            left_k, right_k = _halves(grown_k, size)
            left, right = _halves(whole, 1)
            scales.append((_Scale(right_q.to(q.dtype), left_k.to(k.dtype), left, right), size))
            grown_q = torch.stack([left_q, right_q * left], -3).view(q.shape)
            grown_k = torch.stack([left_k * right, right_k], -3).view(k.shape)
            whole = (left * right).squeeze(-2)
            size *= 2
        return cls(scales, grown_q.to(q.dtype), grown_k.to(k.dtype), whole.squeeze(-2))


def _halves(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Left and right halves of `size` tokens: [..., C, d] to twice [..., C/(2c), c, d]."""
    left, right = torch.unflatten(x, -2, (-1, 2, size)).unbind(-3)
    return left, right


def _left(x: Tensor, size: int) -> Tensor:
    """The left halves, to be changed in place."""
    return torch.unflatten(x, -2, (-1, 2, size))[..., 0, :, :]


def _right(x: Tensor, size: int) -> Tensor:
    """The right halves, to be changed in place."""
    return torch.unflatten(x, -2, (-1, 2, size))[..., 1, :, :]


def _in_chunks(x: Tensor, chunk: int) -> Tensor:
    """[..., T, w] to [..., n, C, w], zero-padded."""
    pad = -x.shape[-2] % chunk
    return torch.unflatten(F.pad(x, (0, 0, 0, pad)) if pad else x.contiguous(), -2, (-1, chunk))


def _decays(log_decay: Tensor, chunk: int) -> Tensor:
    """α = e^g in chunks, in single precision at least: many are multiplied."""
    return _in_chunks(log_decay.to(torch.promote_types(log_decay.dtype, torch.float32)), chunk).exp()


def _read(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, *, chunk: int) -> Tensor:
    """`fading`, by operations that autograd supports."""
    length = q.shape[-2]
    with torch.autocast(q.device.type, enabled=False):
        qs, ks, vs = (_in_chunks(x, chunk) for x in (q, k, v))
        chunks = _Chunks.of(qs, ks, _decays(log_decay, chunk))
        y = (qs * ks).sum(-1, keepdim=True) * vs  # each token reads itself, without decay
        y += chunks.q @ _before(chunks.k.mT @ vs, chunks.whole)
        for scale, size in chunks.scales:
            left_v, _ = _halves(vs, size)
            _right(y, size).add_((scale.q @ scale.k.mT) @ left_v)
    return y.flatten(-3, -2)[..., :length, :]


def _before(added: Tensor, whole: Tensor) -> Tensor:
    """The state before each chunk, [..., n, d, e], from the contribution and the decay [..., n, w] of each."""
    keeps = whole.unsqueeze(-1).to(added.dtype)
    state = torch.zeros_like(added[..., 0, :, :])
    before = []
    # Not by index: the gradient of each `x[..., index, :, :]` has the size of x, so the total grows with n².
    for adds, kept in zip(added.unbind(-3), keeps.unbind(-3), strict=True):
        before.append(state)
        state = torch.addcmul(adds, state, kept)
    return torch.stack(before, -3)


def _gradients(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, g: Tensor, *, chunk: int) -> tuple[Tensor, ...]:
    """The gradients of q, k, v and the logarithms, given that of y."""
    length = q.shape[-2]
    with torch.autocast(q.device.type, enabled=False):
        decay = _decays(log_decay, chunk)
        qs, ks, vs, gs = (_in_chunks(x, chunk) for x in (q, k, v, g))
        chunks = _Chunks.of(qs, ks, decay)
        before = _before(chunks.k.mT @ vs, chunks.whole)
        behind = _before((chunks.q.mT @ gs).flip(-3), chunks.whole.flip(-2)).flip(-3)
        by_q, by_k, by_v = gs @ before.mT, vs @ behind.mT, chunks.k @ behind
        for scale, size in reversed(chunks.scales):
            (left_v, _), (_, right_g) = _halves(vs, size), _halves(gs, size)
            square = right_g @ left_v.mT
            _right(by_q, size).mul_(scale.left).add_(square @ scale.k)
            _left(by_k, size).mul_(scale.right).add_(square.mT @ scale.q)
            _left(by_v, size).add_((scale.k @ scale.q.mT) @ right_g)
        by_q.mul_(decay)
        # What each token reads of itself has no decay.
        by_log = qs * by_q - ks * by_k
        by_log = by_log.sum(-1, keepdim=True) if log_decay.shape[-1] == 1 else by_log
        own_square = (gs * vs).sum(-1, keepdim=True)
        by_q.addcmul_(own_square, ks)
        by_k.addcmul_(own_square, qs)
        by_v.addcmul_((qs * ks).sum(-1, keepdim=True), gs)
        by_q, by_k, by_v, by_log = (x.flatten(-3, -2)[..., :length, :] for x in (by_q, by_k, by_v, by_log))
        # In double precision: terms of tokens that are both after t cancel.
        sums = by_log.flip(-2).cumsum(-2, dtype=torch.float64).flip(-2)
    return by_q, by_k, by_v, sums.to(log_decay.dtype)

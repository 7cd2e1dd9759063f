"""Linear attention with trained decays: S_t = diag(α_t)·S_{t-1} + k_tᵀ·v_t, y_t = q_t·S_t.

In a chunk, each half reads the half before it, at every scale: token i of the right half reads token j of the left one
with the weight Π_{j<t≤i} α_t = (Π of α after j, to the end of the left half)·(Π of α from the start of the right half
to i). From one scale to the next these products are multiplied by the decay of a whole half: queries of the right half
by the decay of the left half, keys of the left half by that of the right half. So every factor is a product of decays,
at most 1, however strong the decay, and no token's numbers depend on later tokens. The state is passed from chunk to
chunk.

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

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.nn.kernels.processor import second_level_cache

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

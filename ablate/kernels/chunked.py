"""((QKᵀ) ∘ decay ∘ tril)·V in chunks, and its gradients: the state before each chunk, and the square inside it.

The text is read in segments of a few chunks, small enough for the processor's cache; a state goes from chunk to chunk,
forwards for the sums and backwards for their gradients. For the backward pass q, k, v and the state before each segment
are kept. Decays are differences of logarithms taken forwards in time, so that no factor exceeds 1.

Shapes: T tokens, n segments of c chunks of C tokens, d width of the keys, e width of the values; `...` leading axes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

_SEGMENT = 1 << 16
"""Numbers in the queries of a segment, about."""
_FEWEST = 4
"""Chunks in a segment, at least; but in the last."""


def chunked(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None, chunk: int) -> Tensor:
    """y_i = Σ_{j≤i} e^(g_{j+1} + ... + g_i)·(q_i·k_j)·v_j.

    Args:
        q: [..., T, d].
        k: [..., T, d], with the leading axes of q.
        v: [..., T, e], with the leading axes of q.
        log_decay: g ≤ 0, [..., T, 1], its leading axes broadcast to those of q; it gets no gradient. None for 0.
        chunk: C.

    Returns:
        [..., T, e], laid out in memory as v is.
    """
    y: Tensor = _Chunked.apply(q, k, v, log_decay, chunk)  # type: ignore[no-untyped-call]
    return y


def segments(length: int, chunk: int) -> int:
    """The most segments of a text of `length` tokens, before each of which a state is kept."""
    return -(-length // (_FEWEST * chunk))


class _Chunked(torch.autograd.Function):
    """With G = ∂/∂y, S the state before a chunk and R that behind it (R = Σ qᵀ·G over later chunks):
    dq = tril(G·vᵀ)·k + G·Sᵀ; dk = tril(G·vᵀ)ᵀ·q + v·Rᵀ; dv = tril(q·kᵀ)ᵀ·G + k·R.
    """

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None, chunk: int
    ) -> Tensor:
        y, starts = torch.empty_like(v), []
        state = v.new_zeros(*v.shape[:-2], q.shape[-1], v.shape[-1])
        with torch.autocast(q.device.type, enabled=False):
            for segment in _cut(q, log_decay, chunk):
                starts.append(state)
                qs, ks, vs = (segment.of(x) for x in (q, k, v))
                before, state = segment.before(ks, vs, state)
                read = segment.from_edge(_product(qs, before))
                segment.put(y, _plus(read, segment.inside(_product(qs, ks.mT)), vs))
        ctx.chunk = chunk  # type: ignore[attr-defined]
        ctx.save_for_backward(q, k, v, log_decay, *starts)  # type: ignore[arg-type]
        return y

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        q, k, v, log_decay, *starts = ctx.saved_tensors  # type: ignore[attr-defined]
        chunk: int = ctx.chunk  # type: ignore[attr-defined]
        if torch.is_grad_enabled():  # for the gradient of a gradient: each of the three is such a sum itself
            later = _over_later(log_decay, chunk)
            return chunked(g, v, k, log_decay, chunk), later(v, g, q), later(k, q, g), None, None
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        state = torch.zeros_like(starts[0])
        for segment, start in zip(reversed(_cut(q, log_decay, chunk)), reversed(starts), strict=True):
            qs, ks, vs, gs = (segment.of(x) for x in (q, k, v, g))
            before, _ = segment.before(ks, vs, start)
            behind, state = segment.behind(qs, gs, state)
            square = segment.inside(_product(gs, vs.mT))
            segment.put(dq, _plus(_product(segment.from_edge(gs), before.mT), square, ks))
            segment.put(dk, _plus(_product(segment.to_end(vs), behind.mT), square.mT, qs))
            square = segment.inside(_product(qs, ks.mT))
            segment.put(dv, _plus(segment.to_end(_product(ks, behind)), square.mT, gs))
        return dq, dk, dv, None, None


def _over_later(log_decay: Tensor | None, chunk: int) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """`chunked` over j ≥ i: the text read from its end."""
    if log_decay is not None:
        log_decay = F.pad(log_decay[..., 1:, :], (0, 0, 0, 1)).flip(-2)
    return lambda q, k, v: chunked(q.flip(-2), k.flip(-2), v.flip(-2), log_decay, chunk).flip(-2)


class _Segment:
    """The tokens from `start` to `stop`, in chunks [c, ..., C, width]; zeros fill up the last one."""

    def __init__(self, start: int, stop: int, chunk: int, mask: Tensor) -> None:
        self.start, self.stop, self.chunk = start, stop, chunk
        self.mask = mask

    def of(self, x: Tensor) -> Tensor:
        """[..., T, w] to [c, ..., C, w]."""
        rows = x[..., self.start : self.stop, :]
        fill = (self.start - self.stop) % self.chunk
        rows = F.pad(rows, (0, 0, 0, fill)) if fill else rows
        return torch.unflatten(rows, -2, (-1, self.chunk)).movedim(-3, 0).contiguous()

    def put(self, y: Tensor, chunks: Tensor) -> None:
        """Write chunks [c, ..., C, w] to their tokens of y [..., T, w]."""
        rows = y[..., self.start : self.stop, :]
        if (self.stop - self.start) % self.chunk:
            rows.copy_(chunks.movedim(0, -3).flatten(-3, -2)[..., : self.stop - self.start, :])
        else:
            torch.unflatten(rows, -2, (-1, self.chunk)).copy_(chunks.movedim(0, -3))

    def inside(self, square: Tensor) -> Tensor:
        """[c, ..., C, C] times the decay from token j to token i, 0 for j > i; in place."""
        return square.mul_(self.mask)

    def from_edge(self, x: Tensor) -> Tensor:
        """x [c, ..., C, w] times the decay from the start of the chunk to each token."""
        return x

    def to_end(self, x: Tensor) -> Tensor:
        """x [c, ..., C, w] times the decay from each token to the end of the chunk."""
        return x

    def next(self, state: Tensor, added: Tensor, chunk: int, out: Tensor | None) -> Tensor:
        """The state on the other side of a chunk."""
        return torch.add(state, added, out=out)

    def before(self, k: Tensor, v: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The states before each chunk [c, ..., d, e], and that behind the segment, from the one before it."""
        return self._states(_product(k.mT, self.to_end(v)), state, range(len(k)))

    def behind(self, q: Tensor, g: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients' states behind each chunk, and that before the segment, from the one behind it."""
        return self._states(_product(q.mT, self.from_edge(g)), state, range(len(q) - 1, -1, -1))

    def _states(self, added: Tensor, state: Tensor, order: range) -> tuple[Tensor, Tensor]:
        states = torch.empty_like(added)
        states[order[0]] = state
        for chunk, following in itertools.pairwise(order):
            self.next(states[chunk], added[chunk], chunk, states[following])
        return states, self.next(states[order[-1]], added[order[-1]], order[-1], None)


class _FadingSegment(_Segment):
    """A segment with decay."""

    def __init__(self, start: int, stop: int, chunk: int, mask: Tensor, log_decay: Tensor) -> None:
        super().__init__(start, stop, chunk, mask)
        # Sums in double and exponentials in single precision at least: a rounded logarithm is a wrong factor.
        g = self.of(log_decay).double().cumsum(-2)  # [c, ..., C, 1]
        last = g[..., -1:, :]
        self.mask = self._factor((g - g.mT).masked_fill(mask == 0, -math.inf))
        self.of_edge, self.of_end, self.whole = self._factor(g), self._factor(last - g), self._factor(last)

    def _factor(self, logs: Tensor) -> Tensor:
        dtype = self.mask.dtype
        return logs.to(torch.promote_types(dtype, torch.float32)).exp().to(dtype)

    def from_edge(self, x: Tensor) -> Tensor:
        return x * self.of_edge

    def to_end(self, x: Tensor) -> Tensor:
        return x * self.of_end

    def next(self, state: Tensor, added: Tensor, chunk: int, out: Tensor | None) -> Tensor:
        return torch.addcmul(added, state, self.whole[chunk], out=out)


def _cut(q: Tensor, log_decay: Tensor | None, chunk: int) -> list[_Segment]:
    length = q.shape[-2]
    mask = torch.ones(chunk, chunk, dtype=q.dtype, device=q.device).tril()
    size = _segment_length(q[..., 0, :].numel(), chunk)
    edges = [(start, min(length, start + size)) for start in range(0, length, size)]
    if log_decay is None:
        return [_Segment(start, stop, chunk, mask) for start, stop in edges]
    log_decay = log_decay.view(*[1] * (q.dim() - log_decay.dim()), *log_decay.shape)
    return [_FadingSegment(start, stop, chunk, mask, log_decay) for start, stop in edges]


def _segment_length(width: int, chunk: int) -> int:
    """Tokens in a segment, each of `width` numbers in all texts together: a whole number of chunks."""
    return max(_FEWEST, _SEGMENT // (width * chunk)) * chunk


def _product(x: Tensor, y: Tensor) -> Tensor:
    """[c, ..., a, b] times [c, ..., b, w]."""
    return torch.bmm(x.flatten(0, -3), y.flatten(0, -3)).view(*x.shape[:-1], y.shape[-1])


def _plus(z: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """z + x·y, in place of z."""
    z.flatten(0, -3).baddbmm_(x.flatten(0, -3), y.flatten(0, -3))
    return z

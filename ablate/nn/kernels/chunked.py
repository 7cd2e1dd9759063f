"""((QKᵀ) ∘ decay ∘ tril)·V in chunks, and its gradients: the state before each chunk, and the square inside it.

The texts are processed in segments that fit the processor's cache: a few texts and heads, or a few chunks of one. In a
segment one product gives the states before all chunks: the triangular matrix of the decays between chunks times the
contribution of each chunk. A state is passed from one segment of a text to the next, forwards for the sums and
backwards for their gradients. For the backward pass q, k, v and the state before each segment are kept. Decays are
differences of logarithms taken forwards in time, so that no factor exceeds 1.

Shapes: s sequences (texts and heads) of n chunks of C tokens, d width of the keys, e width of the values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.nn.kernels.processor import second_level_cache
from ablate.nn.kernels.product import add_product, multiply

_SEGMENT = 1 << (second_level_cache() // 4).bit_length() - 1
"""Approximate size of the queries of a segment on a CPU, in numbers: as many as the level-2 cache holds, rounded down
to a power of two. Measured to be fastest on a Zen 5, with 1 MiB."""
_WIDER = 1 << 6
"""Factor of that size on other devices, where fewer kernel launches matter more."""
_FEWEST = 4
"""Minimum number of chunks in a segment, except the last."""
_MOST = 32
"""Maximum number of chunks in a segment: the product that computes its states grows with their square."""


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


def segments(length: int, width: int, chunk: int) -> int:
    """The number of segments of a text. A state is kept before each but the first; `width` is d."""
    return -(-length // _tokens_of_segment(length, width, chunk))


class _Chunked(torch.autograd.Function):
    """With G = ∂/∂y, S the state before a chunk and R that after it (R = Σ qᵀ·G over later chunks):
    dq = tril(G·vᵀ)·k + G·Sᵀ; dk = tril(G·vᵀ)ᵀ·q + v·Rᵀ; dv = tril(q·kᵀ)ᵀ·G + k·R.
    """

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None, chunk: int
    ) -> Tensor:
        y = _room(v)
        starts: list[Tensor | None] = []
        with torch.autocast(q.device.type, enabled=False):
            for text in _cut(q, log_decay, chunk):
                state = None
                for make in text:
                    segment = make()
                    starts.append(state)
                    qs, ks, vs = (segment.of(x) for x in (q, k, v))
                    before, state = segment.before(ks, vs, state)
                    read = multiply(segment.inside(multiply(qs, ks.mT)), vs)
                    y = segment.put(y, _plus(read, segment.from_edge(qs), before))
        ctx.chunk = chunk  # type: ignore[attr-defined]
        ctx.save_for_backward(q, k, v, log_decay, *starts)  # type: ignore[arg-type]
        return y

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        q, k, v, log_decay, *starts = ctx.saved_tensors  # type: ignore[attr-defined]
        chunk: int = ctx.chunk  # type: ignore[attr-defined]
        if torch.is_grad_enabled():  # for second derivatives: each of the three gradients is such a sum itself
            later = _over_later(log_decay, chunk)
            return chunked(g, v, k, log_decay, chunk), later(v, g, q), later(k, q, g), None, None
        dq, dk, dv = _room(q), _room(k), _room(v)
        with torch.autocast(q.device.type, enabled=False):
            for text in reversed(_cut(q, log_decay, chunk)):
                state = None
                for make in reversed(text):
                    segment = make()
                    qs, ks, vs, gs = (segment.of(x) for x in (q, k, v, g))
                    before, _ = segment.before(ks, vs, starts.pop())
                    behind, state = segment.behind(qs, gs, state)
                    square = segment.inside(multiply(gs, vs.mT))
                    mixed = segment.inside(multiply(qs, ks.mT))
                    from_behind = None if behind is None else behind.mT
                    from_before = None if before is None else before.mT
                    dq = segment.put(dq, _plus(multiply(square, ks), segment.from_edge(gs), from_before))
                    dk = segment.put(dk, _plus(multiply(square.mT, qs), segment.to_end(vs), from_behind))
                    dv = segment.put(dv, _plus(multiply(mixed.mT, gs), segment.to_end(ks), behind))
        return dq, dk, dv, None, None


def _over_later(log_decay: Tensor | None, chunk: int) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """`chunked` over j ≥ i: on the reversed text."""
    if log_decay is not None:
        log_decay = F.pad(log_decay[..., 1:, :], (0, 0, 0, 1)).flip(-2)
    return lambda q, k, v: chunked(q.flip(-2), k.flip(-2), v.flip(-2), log_decay, chunk).flip(-2)


class _Segment:
    """Some texts, heads and tokens; the last chunk is zero-padded. Chunks have shape [s·n, C, width]."""

    def __init__(self, rows: slice, heads: slice, tokens: slice, chunk: int, mask: Tensor, is_last: bool) -> None:
        self.where = (rows, heads, tokens)
        self.sequences = (rows.stop - rows.start) * (heads.stop - heads.start)
        self.tokens = tokens.stop - tokens.start
        self.fill = -self.tokens % chunk
        self.chunk, self.chunks = chunk, (self.tokens + self.fill) // chunk
        self.mask, self.is_last = mask, is_last

    def of(self, x: Tensor) -> Tensor:
        """[..., T, w] to [s·n, C, w], without a copy where the numbers are adjacent in memory."""
        return self._in_chunks(_heads(x)[self.where])

    def _in_chunks(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, self.tokens, x.shape[-1])
        tokens = F.pad(tokens, (0, 0, 0, self.fill)) if self.fill else tokens
        return tokens.reshape(-1, self.chunk, x.shape[-1])

    def put(self, y: Tensor, chunks: Tensor) -> Tensor:
        """y [..., T, w] with chunks [s·n, C, w] written to their tokens, or the chunks where they are all of y."""
        if chunks.numel() == y.numel() and y.is_contiguous():
            return chunks.view(y.shape)
        here = _heads(y)[self.where]
        tokens = chunks.view(self.sequences, -1, y.shape[-1])[:, : self.tokens]
        here.copy_(tokens.view(*here.shape[:2], *tokens.shape[1:]))
        return y

    def inside(self, square: Tensor) -> Tensor:
        """[s·n, C, C] times the decay from token j to token i, 0 for j > i; in place."""
        return square.mul_(self.mask)

    def from_edge(self, x: Tensor) -> Tensor:
        """x [s·n, C, w] times the decay from the start of the chunk to each token."""
        return x

    def to_end(self, x: Tensor) -> Tensor:
        """x [s·n, C, w] times the decay from each token to the end of the chunk."""
        return x

    def between(self, like: Tensor) -> Tensor:
        """The decay between all edges of chunks: [1, n + 1, n + 1], or for each sequence; 0 above the diagonal."""
        return like.new_ones(1, self.chunks + 1, self.chunks + 1).tril()

    def before(self, k: Tensor, v: Tensor, start: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """The states before each chunk [s·n, d, e] and after the segment [s, d, e], from that before the segment.

        None stands for a state of zeros, or one that is not needed.
        """
        if start is None and self.is_last and self.chunks == 1:
            return None, None
        added = self._by_sequence(multiply(k.mT, self.to_end(v)))  # [s, n, d·e]
        between = self.between(added)[:, : self.chunks + (not self.is_last)]
        if start is None:
            states = self._sum(between[..., 1:], added)
        else:
            states = self._sum(between, torch.cat([start.flatten(1).unsqueeze(1), added], 1))
        return self._by_chunk(states[:, : self.chunks], k, v), self._edge(states, self.chunks, k, v)

    def behind(self, q: Tensor, g: Tensor, end: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """The states of the gradients after each chunk and before the segment, from that after the segment."""
        is_first = self.where[2].start == 0
        if end is None and is_first and self.chunks == 1:
            return None, None
        added = self._by_sequence(multiply(q.mT, self.from_edge(g)))
        between = self.between(added).mT[:, int(is_first) :]
        if end is None:
            states = self._sum(between[..., :-1], added)
        else:
            states = self._sum(between, torch.cat([added, end.flatten(1).unsqueeze(1)], 1))
        edge = None if is_first else self._edge(states, 0, q, g)
        return self._by_chunk(states[:, -self.chunks :], q, g), edge

    def _sum(self, weights: Tensor, added: Tensor) -> Tensor:
        texts = self.sequences // len(weights)
        return multiply(weights.expand(texts, *weights.shape).flatten(0, 1), added)

    def _by_sequence(self, states: Tensor) -> Tensor:
        return states.view(self.sequences, self.chunks, -1)

    @staticmethod
    def _by_chunk(states: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return states.reshape(-1, keys.shape[-1], values.shape[-1])

    @staticmethod
    def _edge(states: Tensor, index: int, keys: Tensor, values: Tensor) -> Tensor | None:
        if index >= states.shape[1]:
            return None
        # A copy; otherwise all states would be kept for the backward pass.
        return states[:, index].clone().view(-1, keys.shape[-1], values.shape[-1])


class _FadingSegment(_Segment):
    """A segment with decay."""

    def __init__(self, *here: object, log_decay: Tensor) -> None:
        super().__init__(*here)  # type: ignore[arg-type]
        rows, *rest = self.where
        decays = _heads(log_decay)
        if decays.stride(0) == 0:  # one for all texts
            rows = slice(0, 1)
        # Sums in double and exponentials in single precision at least: a rounded logarithm is a wrong factor.
        g = self._in_chunks(decays[(rows, *rest)]).double().cumsum(-2)  # [s·n, C, 1], or those of one text
        last = g[:, -1:]
        self.whole = F.pad(last.view(-1, self.chunks).cumsum(1), (1, 0))  # to each edge: [s, n + 1]
        self.dtype = self.mask.dtype
        self.mask = self._factor((g - g.mT).masked_fill(self.mask == 0, -math.inf))
        self.of_edge, self.of_end = self._factor(g), self._factor(last - g)

    def _factor(self, logs: Tensor) -> Tensor:
        return logs.to(torch.promote_types(self.dtype, torch.float32)).exp().to(self.dtype)

    def inside(self, square: Tensor) -> Tensor:
        square.view(-1, *self.mask.shape).mul_(self.mask)
        return square

    def from_edge(self, x: Tensor) -> Tensor:
        return (x.view(-1, len(self.of_edge), *x.shape[1:]) * self.of_edge).view(x.shape)

    def to_end(self, x: Tensor) -> Tensor:
        return (x.view(-1, len(self.of_end), *x.shape[1:]) * self.of_end).view(x.shape)

    def between(self, like: Tensor) -> Tensor:
        logs = self.whole.unsqueeze(2) - self.whole.unsqueeze(1)
        above = torch.ones_like(logs, dtype=torch.bool).triu(1)
        return self._factor(logs.masked_fill(above, -math.inf))


def _cut(q: Tensor, log_decay: Tensor | None, chunk: int) -> list[list[Callable[[], _Segment]]]:
    """For each group of sequences, functions that create the segments of their tokens."""
    rows, heads, length, width = _heads(q).shape
    mask = torch.ones(chunk, chunk, dtype=q.dtype, device=q.device).tril()
    if log_decay is not None:
        log_decay = log_decay.expand(*q.shape[:-1], 1)
    tokens = _tokens_of_segment(length, width, chunk)
    numbers = _SEGMENT if q.device.type == "cpu" else _SEGMENT * _WIDER
    together = max(1, round(numbers / (tokens * width)))  # sequences
    texts = []
    for some in _sequences(rows, heads, together):
        text: list[Callable[[], _Segment]] = []
        for start in range(0, length, tokens):
            stop = min(length, start + tokens)
            here = (*some, slice(start, stop), chunk, mask, stop == length)
            if log_decay is None:
                text.append(partial(_Segment, *here))
            else:
                text.append(partial(_FadingSegment, *here, log_decay=log_decay))
        texts.append(text)
    return texts


def _tokens_of_segment(length: int, width: int, chunk: int) -> int:
    """The whole text, or a whole number of chunks."""
    chunks = min(_MOST, max(_FEWEST, _SEGMENT // (width * chunk)))
    return min(length, chunks * chunk)


def _sequences(rows: int, heads: int, together: int) -> Iterator[tuple[slice, slice]]:
    """Some heads of one text, or all heads of some texts."""
    texts, some = (max(1, together // heads), min(heads, together))
    for row, head in itertools.product(range(0, rows, texts), range(0, heads, some)):
        yield slice(row, min(rows, row + texts)), slice(head, min(heads, head + some))


def _heads(x: Tensor) -> Tensor:
    """[..., T, w] to [texts, heads, T, w]."""
    return x.view(1, *x.shape) if x.dim() == 3 else x.view(1, 1, *x.shape) if x.dim() == 2 else x.flatten(0, -4)


def _room(x: Tensor) -> Tensor:
    """An empty tensor with the memory layout of x: heads separate, or the heads of a token adjacent."""
    if x.dim() > 2 and x.stride(-3) < x.stride(-2):
        return torch.empty_like(x.transpose(-3, -2), memory_format=torch.contiguous_format).transpose(-3, -2)
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _plus(z: Tensor, x: Tensor, y: Tensor | None) -> Tensor:
    """z + x·y, written into z; y None is 0."""
    return z if y is None else add_product(z, x, y)

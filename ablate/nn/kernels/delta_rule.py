"""The delta rule and related recurrences with decay, computed in chunks.

S_t = diag(e^(g_t))·S_{t-1} + w_t·(c_t - r_t·S)ᵀ + k_tᵀ·v_t and o_t = q_t·S_t, with log decays g_t ≤ 0 for each head or
for each channel of the keys. The state is read with the key r_t and corrected at the key w_t by the error c_t - r_t·S.
S is the decayed state, diag(e^(g_t))·S_{t-1}, in Gated DeltaNet (arXiv:2412.06464, eq. 10) and Kimi Delta Attention
(arXiv:2510.26692, eq. 1), which have no k_tᵀ·v_t, and S_{t-1} itself in RWKV-7 (arXiv:2503.14456, eq. 17), where c = 0.

In a chunk with the state S₀ before it and G_t = g_1 + ... + g_t, the corrections e_t = c_t - r_t·S are the solution of
a unit lower triangular system: e_i + Σ_{j<i} A_ij·e_j = c_i - (r_i ∘ e^(G_i))·S₀ - Σ_{j<i} B_ij·v_j, where A and B are
the products of r with w and with k, each channel decayed from token j to token i (G_{i-1} stands for G_i where S is
S_{t-1}). All decays are taken forwards in time, so that no exponential exceeds 1.

Shapes: any leading axes, then T tokens, and d width of the keys, e width of the values; n chunks of C tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 32
"""Tokens in a chunk, a power of two."""


class Written(NamedTuple):
    """How a token changes the state.

    Attributes:
        read: r, [..., T, d].
        write: w, [..., T, d].
        wanted: c, [..., T, e]; None for 0.
        key: k, [..., T, d]; None if there is no k·vᵀ.
        value: v, [..., T, e]; given if `key` is.
        decayed_first: Whether r reads the decayed state.
    """

    read: Tensor
    write: Tensor
    wanted: Tensor | None = None
    key: Tensor | None = None
    value: Tensor | None = None
    decayed_first: bool = True


def recur(q: Tensor, written: Written, log_decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One token.

    Args:
        q: [..., 1, d].
        written: The token's change of the state, [..., 1, d] and [..., 1, e].
        log_decay: g, [..., 1, 1] or [..., 1, d].
        state: S_{t-1}, [..., d, e].

    Returns:
        o, [..., 1, e], and S_t.
    """
    decayed = state * log_decay.exp().mT
    off = written.read @ (decayed if written.decayed_first else state)
    error = -off if written.wanted is None else written.wanted - off
    new = decayed + written.write.mT @ error
    if written.key is not None and written.value is not None:
        new = new + written.key.mT @ written.value
    return q @ new, new


def chunked(q: Tensor, written: Written, log_decay: Tensor, chunk: int = CHUNK) -> Tensor:
    """All tokens, from the state 0 on; in single precision at least, also under autocast.

    Args:
        q: [..., T, d].
        written: The change of the state by each token.
        log_decay: g ≤ 0, [..., T, 1] or [..., T, d].
        chunk: C, a power of two.

    Returns:
        [..., T, e], in the type of q.
    """
    exact = torch.promote_types(q.dtype, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        chunks = _chunks(q, written, log_decay, chunk, exact)
        return chunks.flatten(-3, -2)[..., : q.shape[-2], :].to(q.dtype)


def kept_activations(length: int, d: int, e: int, *, by_channel: bool, with_values: bool = False) -> int:
    """Number of scalars that `chunked` keeps for the backward pass over one sequence and head, including its inputs.

    Args:
        length: T.
        d: Width of the keys.
        e: Width of the values.
        by_channel: Whether each channel has a separate decay.
        with_values: Whether there are k and v, and c is 0 (RWKV-7); else there is c alone.
    """
    tokens = length + -length % CHUNK
    scales = CHUNK.bit_length() - 1
    squares = 4 if with_values else 2  # products of tokens with tokens
    if by_channel:  # at each scale half of both factors is decayed, and the decays are kept too
        faded = d * (squares * 2 * scales + (11 if with_values else 9)) + squares * (CHUNK + 1) + 2
        inputs = (4 if with_values else 3) * d + e + 1
    else:
        faded = 6 * d + 6 * CHUNK + 7
        inputs = 2 * d + e + 2
    return tokens * (faded + inputs + (3 if with_values else 2) * e) + tokens // CHUNK * d * e


def _chunks(q: Tensor, written: Written, log_decay: Tensor, chunk: int, exact: torch.dtype) -> Tensor:
    """o in chunks, [..., n, C, e]."""

    def cut(x: Tensor) -> Tensor:
        return torch.unflatten(F.pad(x.to(exact), (0, 0, 0, -x.shape[-2] % chunk)), -2, (-1, chunk))

    q, read, write, g = (cut(x) for x in (q, written.read, written.write, log_decay))
    # From the start of the chunk up to and including each token; in double, since factors are e^(small differences).
    total = g.double().cumsum(-2)
    before = total if written.decayed_first else total - g
    eye = torch.eye(chunk, dtype=exact, device=q.device)
    system = _faded(read, write, before, total) + eye
    right = [read * _factor(before, q)]  # what multiplies S₀, then what does not depend on it
    wanted = None if written.wanted is None else cut(written.wanted)
    key = value = None
    if written.key is not None and written.value is not None:
        key, value = cut(written.key), cut(written.value)
        pushed = _faded(read, key, before, total) @ value
        wanted = -pushed if wanted is None else wanted - pushed
    if wanted is not None:
        right.append(wanted)
    solved = torch.linalg.solve_triangular(system, torch.cat(right, -1), upper=False, unitriangular=True)
    of_state, alone = torch.split(solved, [q.shape[-1], solved.shape[-1] - q.shape[-1]], -1)

    last = total[..., -1:, :]
    to_end = _factor(last - total, q)
    queries, kept = q * _factor(total, q), _factor(last, q).mT
    errors_read = _faded(q, write, total, total) + (q * write).sum(-1, keepdim=True) * eye
    written_on = (write * to_end).mT
    mixed = None
    added = None
    if key is not None and value is not None:
        mixed = (_faded(q, key, total, total) + (q * key).sum(-1, keepdim=True) * eye) @ value
        added = (key * to_end).mT @ value

    state = torch.zeros(*q.shape[:-3], q.shape[-1], _value_width(written), dtype=exact, device=q.device)
    outputs = []
    # Not by index: the gradient of each `x[..., index, :, :]` has the size of x, so the total grows with n².
    nothing = [None] * q.shape[-3]
    for query, reads, of_before, fixed, keeps, writes, own, adds in zip(
        *(x.unbind(-3) for x in (queries, errors_read, of_state)),
        nothing if wanted is None else alone.unbind(-3),
        *(x.unbind(-3) for x in (kept, written_on)),
        *(nothing if x is None else x.unbind(-3) for x in (mixed, added)),
        strict=True,
    ):
        error = -(of_before @ state)
        if fixed is not None:
            error = error + fixed
        y = query @ state + reads @ error
        state = state * keeps + writes @ error
        if own is not None and adds is not None:
            y, state = y + own, state + adds
        outputs.append(y)
    return torch.stack(outputs, -3)


def _value_width(written: Written) -> int:
    values = written.wanted if written.wanted is not None else written.value
    assert values is not None, "without a wanted value and without values the state stays 0"
    return values.shape[-1]


def _factor(logs: Tensor, like: Tensor) -> Tensor:
    """e^logs in the type of another tensor."""
    return logs.to(like.dtype).exp()


def _faded(left: Tensor, right: Tensor, left_total: Tensor, right_total: Tensor) -> Tensor:
    """Σ_c left_ic·right_jc·e^(left_total_ic - right_total_jc) for j < i, else 0: [..., C, d] twice to [..., C, C]."""
    if left_total.shape[-1] == 1:
        logs = (left_total - right_total.mT).tril(-1)
        return ((left @ right.mT) * _factor(logs, left)).tril(-1)
    return _faded_by_channel(left, right, left_total, right_total)


def _faded_by_channel(left: Tensor, right: Tensor, left_total: Tensor, right_total: Tensor) -> Tensor:
    """As `_faded`, recursively: the second half reads the first across the edge between them, then each half itself.

    e^(l_i - r_j) = e^(l_i - r_b)·e^(r_b - r_j) for the last token b of the first half, and no factor exceeds 1.
    """
    size = left.shape[-2]
    if size == 1:
        return left.new_zeros(*left.shape[:-1], 1)
    halves = [torch.unflatten(x, -2, (2, size // 2)) for x in (left, right, left_total, right_total)]
    within = _faded_by_channel(*halves)
    first, second = within.unbind(-3)
    edge = halves[3][..., 0, -1:, :]
    reading = halves[0][..., 1, :, :] * _factor(halves[2][..., 1, :, :] - edge, left)
    across = reading @ (halves[1][..., 0, :, :] * _factor(edge - halves[3][..., 0, :, :], left)).mT
    upper = torch.cat([first, torch.zeros_like(across)], -1)
    return torch.cat([upper, torch.cat([across, second], -1)], -2)

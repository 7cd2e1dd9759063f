"""Attention without softmax, in linear time: y_t = q_t·Σ_s k_sᵀ v_s, over all s or over s ≤ t.

Shapes: any leading axes, then T tokens and d head width.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def bidirectional(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Q·(KᵀV): [..., T, d], [..., T, d], [..., T, e] to [..., T, e]."""
    return q @ (k.mT @ v)


def causal(q: Tensor, k: Tensor, v: Tensor, chunk: int = 32) -> Tensor:
    """((QKᵀ) ∘ tril)·V in chunks: the state before each chunk, plus the masked square inside it.

    Args:
        q: [..., T, d].
        k: [..., T, d].
        v: [..., T, e].
        chunk: Tokens in a chunk; memory is linear in T for any.

    Returns:
        [..., T, e].
    """
    length = q.shape[-2]
    pad = -length % chunk
    q, k, v = (F.pad(x, (0, 0, 0, pad)).view(*x.shape[:-2], -1, chunk, x.shape[-1]) for x in (q, k, v))
    states = k.mT @ v  # [..., n, d, e]
    before = states.cumsum(-3) - states
    y = q @ before + (q @ k.mT).tril() @ v
    return y.flatten(-3, -2)[..., :length, :]

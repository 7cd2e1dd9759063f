"""Positions that attention applies itself: rotary embeddings of queries and keys, and ALiBi's bias of the logits."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x: Tensor, first: int = 0, base: float = 10000.0) -> Tensor:
    """Rotary embedding (arXiv:2104.09864): pair (i, i + d/2) of position t turns by t·base^(-2i/d).

    Args:
        x: Queries or keys [..., T, d], d even.
        first: Position of the first of them.
        base: Of the frequencies.

    Returns:
        The same shape; products of rotated queries and keys depend on the distance of their positions alone.
    """
    length, width = x.shape[-2:]
    exact = torch.promote_types(x.dtype, torch.float32)  # half precision cannot count the positions
    pair = torch.arange(width // 2, device=x.device, dtype=exact)
    place = torch.arange(first, first + length, device=x.device, dtype=exact)
    angle = place[:, None] * base ** (-2.0 * pair / width)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    left, right = x[..., : width // 2], x[..., width // 2 :]
    return torch.cat([left * cos - right * sin, left * sin + right * cos], -1)


def alibi_bias(heads: int, length: int, device: torch.device, dtype: torch.dtype, first: int = 0) -> Tensor:
    """ALiBi (arXiv:2108.12409): -m_h·|i - j| with slopes m_h = 2^(-8h/H), h = 1 ... H.

    [H, T, T] for a `length` of T, or the rows from i = `first` on.
    """
    exact = torch.promote_types(dtype, torch.float32)
    slope = 2.0 ** (-8.0 * torch.arange(1, heads + 1, device=device, dtype=exact) / heads)
    position = torch.arange(length, device=device, dtype=exact)
    return (-slope[:, None, None] * (position[first:, None] - position[None, :]).abs()).to(dtype)

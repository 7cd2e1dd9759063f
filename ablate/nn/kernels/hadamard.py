"""The Walsh-Hadamard transform in n·log n additions: H_1 = 1, H_2n = [[H_n, H_n], [H_n, -H_n]], not normalised."""

from __future__ import annotations

import torch
from torch import Tensor


def hadamard(x: Tensor) -> Tensor:
    """x·H_n over the last axis, whose width n is a power of two: [..., n] to the same."""
    size = 1
    while size < x.shape[-1]:
        pairs = torch.unflatten(x, -1, (-1, 2, size))
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        x = torch.stack([first + second, first - second], -2).flatten(-3)
        size *= 2
    return x

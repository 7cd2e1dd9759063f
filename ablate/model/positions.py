"""Positions that are added to the token embedding. Shapes: K pack, B batch, T tokens, D width."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ablate.pack import Packed, normal


class LearnedPositions(Packed):
    """A trainable row for each position."""

    weight: Tensor

    def __init__(self, pack: int, context: int, width: int, *, std: float) -> None:
        super().__init__(pack)
        self.declare("weight", (context, width), normal(std), decay=True)

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        """[K, B, T, D], the tokens from place `first` on, to the same."""
        return x + self.weight[:, None, first : first + x.shape[2]]


class SinusoidalPositions(nn.Module):
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos of the same (arXiv:1706.03762, §3.5)."""

    table: Tensor

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        position = torch.arange(context, dtype=torch.float64)[:, None]
        pair = torch.arange(0, width, 2, dtype=torch.float64)
        angle = position / 10000.0 ** (pair / width)
        table = torch.zeros(context, width)
        table[:, 0::2] = angle.sin()
        table[:, 1::2] = angle.cos()[:, : width // 2]
        self.register_buffer("table", table, persistent=False)

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        """[K, B, T, D], the tokens from place `first` on, to the same."""
        return x + self.table[first : first + x.shape[2]]

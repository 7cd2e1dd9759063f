"""`Unpacked`: a module without a pack axis, in a pack of one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Unpacked(nn.Module):
    """Wraps a mixer or MLP written for [B, T, D]. Its parameters carry no pack axis; it is never fused.

    Args:
        build: Creates the module; `start` calls it again, because only the module knows its initial values.
        pack: K, which must be 1.
    """

    def __init__(self, build: Callable[[], nn.Module], pack: int) -> None:
        super().__init__()
        if pack != 1:
            raise ValueError("a part that is not pack-aware is trained in a pack of one")
        self._build = build
        self.module = build()

    def start(self, seed: int) -> None:
        """Build the module with torch's random generator seeded by `seed`."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.module = self._build()

    def forward(self, x: Tensor, *padding: Tensor | None) -> Tensor:
        """[1, B, T, D] to the same; `padding` [1, B, T], for a mixer, is True where a token is real."""
        y: Tensor = self.module(x[0], *(None if mask is None else mask[0] for mask in padding))
        return y.unsqueeze(0)

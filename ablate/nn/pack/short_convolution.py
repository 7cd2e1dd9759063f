"""A short causal depthwise convolution with SiLU, which recurrent mixers apply before their state.

y_t = SiLU(Σ_i w_i ∘ x_{t-i} + b) over i = 0 ... n - 1; inputs before the first token are 0.

Shapes: K pack, B batch, T tokens, C channels, n taps.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.nn.pack.initial import uniform
from ablate.nn.pack.packed import Packed
from ablate.spec.cost import Cost
from ablate.spec.initialiser import zeros


class ShortConvolution(Packed):
    """The convolution; as in torch, its initial weights are uniform in ±1/√n.

    Args:
        pack: K.
        channels: C.
        taps: n, the kernel size; the last one is for the current token.
        bias: Whether there is a b.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, pack: int, channels: int, taps: int, *, bias: bool = False) -> None:
        super().__init__(pack)
        self.taps = taps
        self.declare("weight", (channels, taps), uniform(1 / math.sqrt(taps)), decay=True, depthwise=True)
        if bias:
            self.declare("bias", (channels,), zeros)
        else:
            self.bias = None

    def forward(self, x: Tensor) -> Tensor:
        """[K, B, T, C] to the same."""
        return self._over(F.pad(x, (0, 0, self.taps - 1, 0)))

    def step(self, x: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """One token [K, B, 1, C], and the n - 1 inputs before it, [K, B, n - 1, C]; None before the first.

        Returns:
            y, and the inputs to be kept for the next token.
        """
        if before is None:
            before = x.new_zeros(*x.shape[:2], self.taps - 1, x.shape[-1])
        seen = torch.cat([before, x], 2)
        return self._over(seen), seen[:, :, 1:]

    def _over(self, padded: Tensor) -> Tensor:
        """[K, B, n - 1 + T, C] to [K, B, T, C]."""
        length = padded.shape[2] - self.taps + 1
        taps = self.weight[:, None, None]  # [K, 1, 1, C, n]
        y = padded[:, :, :length] * taps[..., 0]
        for lag in range(1, self.taps):
            y = y + padded[:, :, lag : lag + length] * taps[..., lag]
        if self.bias is not None:
            y = y + self.bias[:, None, None]
        return F.silu(y)


def short_convolution_cost(length: int, channels: int, taps: int, *, bias: bool = False) -> Cost:
    """Cost of the forward pass over one sequence. Kept: the padded input, and the input of SiLU."""
    elements = length * channels
    return Cost(
        parameters=channels * (taps + bias),
        multiplications=elements * (taps + 1),
        additions=elements * (taps - 1 + bias + 1),
        divisions=elements,
        exponentiations=elements,
        activations=(length + taps - 1) * channels + elements,
    )

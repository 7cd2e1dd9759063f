"""RWKV-7 channel mixing: a hidden layer over each token and the previous one.

y = W_V·max(0, W_K·(x_t + (x_{t-1} - x_t) ∘ μ))², x_{-1} = 0. It is a mixer because it reads the previous token: RWKV-7
alternates layers of time mixing (`rwkv7`) and of channel mixing, all without an MLP.

- RWKV-7 "Goose" (arXiv:2503.14456), eqs 22 and 23; https://arxiv.org/abs/2503.14456
- Initial values as in the authors' code (https://github.com/BlinkDL/RWKV-LM, `RWKV_CMix_x070`)

Inputs of padded tokens are replaced by 0.

Shapes: K pack, B batch, T tokens, D width, R hidden width.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from ablate.kinds.mixers.rwkv7 import shares
from ablate.nn.pack import Linear, Packed, State, linear, zeros
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import InitialiserSpec, LayerContext
from ablate.spec.sublayers import MixerSpec


class ChannelMixingSpec(MixerSpec):
    """RWKV-7 channel mixing: a squared ReLU layer over each token and the previous one."""

    source = "arXiv:2503.14456 eqs 22, 23"
    complexity = "Ld²"
    bidirectional_form = False

    kind: Literal["channel_mixing"] = "channel_mixing"
    ratio: float = Field(default=4.0, gt=0)
    """Hidden width R divided by the model's width."""

    def hidden(self, width: int) -> int:
        """R, the hidden width."""
        return max(1, round(self.ratio * width))

    def starts_at_zero(self, initialiser: InitialiserSpec) -> bool:
        """Always, as its last projection does in the authors' code."""
        return True

    def build(self, context: LayerContext) -> ChannelMixing:
        return ChannelMixing(self, context)

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        return (
            (("shift", "x + (x₋₁ - x) μ"),),
            (("key", "W_K"),),
            (("activation", f"ReLU², {self.ratio:g}d wide"),),
            (("output", "W_V"),),
        )

    def cache(self, context: LayerContext, length: int) -> int:
        """The last input."""
        return context.width

    def cost(self, context: LayerContext, length: int) -> Cost:
        """Kept: the input, its difference to the previous one, and the inputs of the maps and of the square."""
        elements, hidden = length * context.width, length * self.hidden(context.width)
        shift = Cost(
            parameters=context.width,
            multiplications=elements + hidden,
            additions=2 * elements,
            activations=elements + hidden,
        )
        wide = self.hidden(context.width)
        return shift + linear_cost(length, context.width, wide) + linear_cost(length, wide, context.width)


class ChannelMixing(Packed):
    """The module of `ChannelMixingSpec`; W_V starts at 0."""

    share: Tensor

    def __init__(self, spec: ChannelMixingSpec, context: LayerContext) -> None:
        super().__init__(context.pack)
        hidden = spec.hidden(context.width)
        self.declare("share", (context.width,), shares((1 - context.layer / context.depth) ** 4))
        self.key = linear(context, context.width, hidden)
        self.value = Linear(context.pack, hidden, context.width, initial=zeros)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        if padding is not None:
            x = x * padding.unsqueeze(-1)
        return self._mixed(x, F.pad(x, (0, 0, 1, 0))[:, :, :-1])

    def step(self, x: Tensor, position: int, state: State) -> tuple[Tensor, State]:
        """The state: the last input."""
        return self._mixed(x, state[0] if state else torch.zeros_like(x)), (x,)

    def _mixed(self, x: Tensor, before: Tensor) -> Tensor:
        y: Tensor = self.value(F.relu(self.key(x + (before - x) * self.share[:, None, None])).square())
        return y

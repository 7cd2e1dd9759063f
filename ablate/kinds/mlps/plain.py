"""The MLP of the Transformer: y = W₂·act(W₁x).

- Attention Is All You Need (arXiv:1706.03762), eq. 2; https://arxiv.org/abs/1706.03762

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from ablate.kinds.mlps import HiddenLayerSpec
from ablate.nn.pack import ACTIVATIONS, ConvolutionSlot, dropout, linear
from ablate.spec.layer import LayerContext


class PlainMLPSpec(HiddenLayerSpec):
    """W₂·act(W₁x)."""

    source = "arXiv:1706.03762 eq. 2"
    ways_in = 1
    products = 0

    kind: Literal["plain"] = "plain"

    def build(self, context: LayerContext) -> PlainMLP:
        return PlainMLP(self, context)

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        return (("up", "W₁"),), (("activation", self.hidden_label()),), (("down", "W₂"),)


class PlainMLP(nn.Module):
    """The module of `PlainMLPSpec`."""

    def __init__(self, spec: PlainMLPSpec, context: LayerContext) -> None:
        super().__init__()
        width, hidden = context.width, spec.hidden(context.width)
        self.activation = ACTIVATIONS[spec.activation]
        self.dropout = spec.dropout
        self.up = linear(context, width, hidden, bias=spec.bias)
        self.down = linear(context, hidden, width, bias=spec.bias, role="output")
        self.convolution = ConvolutionSlot.of(context, "in_mlp", hidden)

    def forward(self, x: Tensor) -> Tensor:
        """[K, ..., D] to the same."""
        hidden = self.up(x)
        if self.convolution is not None:
            hidden = self.convolution(hidden)
        y: Tensor = self.down(dropout(self.activation(hidden), self.dropout, self.training))
        return y

"""The gated MLP (GLU): y = W₂·(act(W_g x) ∘ W₁x); with `silu` SwiGLU, with `gelu` GEGLU.

- GLU Variants Improve Transformer (arXiv:2002.05202), eqs 5 and 6; https://arxiv.org/abs/2002.05202

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from ablate.kinds.mlps.hidden_layer import HiddenLayerSpec
from ablate.nn.pack import ACTIVATIONS, linear
from ablate.spec.layer import LayerContext


class GatedMLPSpec(HiddenLayerSpec):
    """W₂·(act(W_g x) ∘ W₁x)."""

    source = "arXiv:2002.05202 eqs 5, 6"
    ways_in = 2
    products = 2

    kind: Literal["gated"] = "gated"

    def build(self, context: LayerContext) -> GatedMLP:
        """See `MLPSpec.build`."""
        return GatedMLP(self, context)

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """See `MLPSpec.parts`."""
        return (("gate", "W_g"), ("up", "W₁")), (("activation", self.hidden_label()),), (("down", "W₂"),)


class GatedMLP(nn.Module):
    """The module of `GatedMLPSpec`."""

    def __init__(self, spec: GatedMLPSpec, context: LayerContext) -> None:
        super().__init__()
        width, hidden = context.width, spec.hidden(context.width)
        self.activation = ACTIVATIONS[spec.activation]
        self.up = linear(context, width, hidden, bias=spec.bias)
        self.gate = linear(context, width, hidden, bias=spec.bias)
        self.down = linear(context, hidden, width, bias=spec.bias, role="output")

    def forward(self, x: Tensor) -> Tensor:
        """[K, ..., D] to the same."""
        hidden = self.up(x)
        y: Tensor = self.down(self.activation(self.gate(x)) * hidden)
        return y

"""The gated MLP (GLU): y = W₂·(act(W_g x) ∘ W₁x): `silu` SwiGLU, `gelu` GEGLU, `relu` ReGLU, `identity` bilinear.

- GLU Variants Improve Transformer (arXiv:2002.05202), eqs 5 and 6; https://arxiv.org/abs/2002.05202
- gpt-oss (arXiv:2508.10925), whose product is act(min(g, 7)) ∘ (clamp(u, -7, 7) + 1); https://arxiv.org/abs/2508.10925

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from ablate.kinds.mlps import HiddenLayerSpec
from ablate.nn.pack import ACTIVATIONS, ConvolutionSlot, dropout, linear
from ablate.spec.activations import Activation
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext


class GatedMLPSpec(HiddenLayerSpec):
    """W₂·(act(W_g x) ∘ W₁x)."""

    source = "arXiv:2002.05202 eqs 5, 6"
    ways_in = 2
    products = 2

    kind: Literal["gated"] = "gated"
    limit: float | None = Field(default=None, gt=0)
    """If set, W_g x is clamped to at most this value, and W₁x to ± this value."""
    shift: float = 0.0
    """Added to W₁x before the product; 1 in gpt-oss."""

    def build(self, context: LayerContext) -> GatedMLP:
        return GatedMLP(self, context)

    def cost(self, context: LayerContext, length: int) -> Cost:
        return super().cost(context, length) + product_cost(length * self.hidden(context.width), self.limit, self.shift)

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        limit = () if self.limit is None else (("limit", f"at most {self.limit:g}"),)
        shift = (("shift", f"W₁x + {self.shift:g}"),) if self.shift else ()
        middle = (("activation", self.hidden_label()), *limit, *shift)
        return (("gate", "W_g"), ("up", "W₁")), middle, (("down", "W₂"),)


class GatedMLP(nn.Module):
    """The module of `GatedMLPSpec`."""

    def __init__(self, spec: GatedMLPSpec, context: LayerContext) -> None:
        super().__init__()
        width, hidden = context.width, spec.hidden(context.width)
        self.spec = spec
        self.up = linear(context, width, hidden, bias=spec.bias)
        self.gate = linear(context, width, hidden, bias=spec.bias)
        self.down = linear(context, hidden, width, bias=spec.bias, role="output")
        self.convolution = ConvolutionSlot.of(context, "in_mlp", 2 * hidden)

    def forward(self, x: Tensor) -> Tensor:
        """[K, ..., D] to the same."""
        spec, up, gate = self.spec, self.up(x), self.gate(x)
        if self.convolution is not None:
            gate, up = self.convolution.together(gate, up)
        hidden = gated_product(gate, up, spec.activation, spec.limit, spec.shift)
        y: Tensor = self.down(dropout(hidden, spec.dropout, self.training))
        return y


def gated_product(gate: Tensor, up: Tensor, activation: Activation, limit: float | None, shift: float) -> Tensor:
    """act(gate) ∘ (up + shift), after both are clamped to the limit, if there is one."""
    if limit is not None:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return ACTIVATIONS[activation](gate) * (up + shift if shift else up)


def product_cost(elements: int, limit: float | None, shift: float) -> Cost:
    """Cost that limit and shift add for this many elements; a limit keeps its input for the backward pass."""
    return Cost(additions=elements * (shift != 0), activations=2 * elements * (limit is not None))

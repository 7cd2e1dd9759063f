"""The kinds of MLP: its Spec, its Module, its cost, its equation and its paper; and their base.

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

from pydantic import Field

from ablate.spec.activations import KEPT, LABELS, Activation
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import InitialiserSpec, LayerContext
from ablate.spec.sublayers import MLPSpec


class HiddenLayerSpec(MLPSpec, ABC):
    """An MLP with one hidden layer."""

    ways_in: ClassVar[int]
    """Number of maps from the input to the hidden layer."""
    products: ClassVar[int]
    """Number of tensors of the hidden width that products between those maps keep for the backward pass."""

    ratio: float = Field(default=4.0, gt=0)
    """Hidden width divided by the model's width."""
    activation: Activation = "relu"
    """Nonlinearity of the hidden layer, by torch's name; also `gelu_tanh` (GPT-2's approximation of `gelu`),
    `relu_squared`, `quick_gelu` (x·σ(1.702x)) and `identity` (a gated MLP is then bilinear)."""
    bias: bool = False
    """Whether the projections have biases."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the hidden layer, after the nonlinearity (SimpleTRON's code). `dropout` of the block applies to the
    output of the MLP."""

    def hidden(self, width: int) -> int:
        """Width of the hidden layer."""
        return max(1, round(self.ratio * width))

    def convolved_width(self, context: LayerContext) -> int:
        return self.ways_in * self.hidden(context.width)

    def starts_at_zero(self, initialiser: InitialiserSpec) -> bool:
        """Whether its last projection does; a bias always starts at 0."""
        return initialiser.zero_outputs

    def cost(self, context: LayerContext, length: int) -> Cost:
        """The activation counts as one multiplication for each element.

        Kept for the backward pass: the input and, of each hidden unit, the result and the inputs of products and of the
        nonlinearity; ReLU keeps its result instead of its input.
        """
        width, hidden = context.width, self.hidden(context.width)
        kept = self.products + KEPT.get(self.activation, 1) + 2 * (self.dropout > 0)  # the mask and the result
        elementwise = Cost(multiplications=self.ways_in * length * hidden, activations=kept * length * hidden)
        inward = linear_cost(length, width, self.ways_in * hidden, bias=self.bias)
        return inward + elementwise + linear_cost(length, hidden, width, bias=self.bias)

    def hidden_label(self) -> str:
        """Nonlinearity and width of the hidden layer, for drawings."""
        return f"{LABELS.get(self.activation, self.activation)}, {self.ratio:g}d wide"

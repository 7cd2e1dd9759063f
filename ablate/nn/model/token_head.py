"""The parts around the output matrix of a model of tokens: a dense layer before it, a bias after it.

Shapes: K pack, B batch, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

from torch import Tensor, nn

from ablate.nn.kernels.summed_product import summed_product
from ablate.nn.pack import ACTIVATIONS, Linear, Packed, linear, zeros
from ablate.spec.activation import KEPT
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.embedding import HeadTransformSpec
from ablate.spec.layer import LayerContext


class HeadTransform(nn.Module):
    """N(act(W·x + b)) (`HeadTransformSpec`)."""

    def __init__(self, spec: HeadTransformSpec, context: LayerContext) -> None:
        super().__init__()
        self.dense = linear(context, context.width, context.width, bias=spec.bias)
        self.activation = ACTIVATIONS[spec.activation]
        self.norm = spec.norm.build(context.pack, context.width)

    def forward(self, x: Tensor) -> Tensor:
        """[K, B, T, D] to the same."""
        y: Tensor = self.norm(self.activation(self.dense(x)))
        return y


class HeadMap(Linear):
    """The output matrix of a model whose head is not tied to its embedding; no bias."""

    def __init__(self, context: LayerContext, vocabulary: int) -> None:
        width = context.width
        super().__init__(context.pack, width, vocabulary, initial=context.initial("head", width, vocabulary))

    def forward(self, x: Tensor) -> Tensor:
        """[K, ..., D] to [K, ..., V]."""
        y = summed_product(x.flatten(1, -2), self.weight)
        return y.view(*x.shape[:-1], y.shape[-1])


class HeadBias(Packed):
    """A trained number for each token id, added to its logits; initially 0."""

    value: Tensor

    def __init__(self, pack: int, vocabulary: int) -> None:
        super().__init__(pack)
        self.declare("value", (vocabulary,), zeros)

    def forward(self, logits: Tensor) -> Tensor:
        """Logits [K, B, T, V] to the same."""
        return logits + self.value[:, None, None]


def head_transform_cost(spec: HeadTransformSpec, width: int, length: int) -> Cost:
    """Cost of `HeadTransform` over one sequence; the activation counts as one multiplication for each element."""
    elements = length * width
    bent = Cost(multiplications=elements, activations=KEPT.get(spec.activation, 1) * elements)
    return linear_cost(length, width, width, bias=spec.bias) + bent + spec.norm.cost(width, length)


def head_bias_cost(vocabulary: int, length: int) -> Cost:
    """Cost of `HeadBias` over one sequence."""
    return Cost(parameters=vocabulary, additions=length * vocabulary)

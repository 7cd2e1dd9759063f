"""Pooling of an encoder's tokens, and a small MLP from the pooled vector to the classes.

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from ablate.nn.pack import ACTIVATIONS, linear
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.model import HeadSpec


class Classifier(nn.Module):
    """[K, B, inputs] through hidden layers to [K, B, classes]; all maps are biased."""

    def __init__(self, spec: HeadSpec, context: LayerContext, inputs: int, classes: int) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[spec.activation]
        widths = (inputs, *spec.hidden, classes)
        self.layers = nn.ModuleList(linear(context, *pair, bias=True, role="head") for pair in pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        """[K, B, inputs] to logits [K, B, classes]."""
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        logits: Tensor = self.layers[-1](x)
        return logits


def pool(kind: str, x: Tensor, padding: Tensor | None) -> Tensor:
    """[K, B, T, D] to [K, B, D]: the first real token (CLS, if the model has one), or the mean of the real tokens."""
    if padding is None:
        return x.mean(2) if kind == "mean" else x[:, :, 0]
    if kind != "mean":
        first = padding.int().argmax(2)[..., None, None]  # of equal ones argmax gives the first
        return x.take_along_dim(first, 2).squeeze(2)
    real = padding.unsqueeze(-1).to(x.dtype)
    return (x * real).sum(2) / real.sum(2).clamp(min=1)


def classifier_cost(spec: HeadSpec, inputs: int, classes: int) -> Cost:
    """Cost of a `Classifier` for one example; an activation counts as one multiplication for each element."""
    total = Cost()
    for wide, narrow in pairwise((inputs, *spec.hidden, classes)):
        total += linear_cost(1, wide, narrow, bias=True)
    hidden = sum(spec.hidden)
    return total + Cost(multiplications=hidden, activations=hidden)

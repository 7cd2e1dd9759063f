"""Depth-weighted average: each layer starts from a weighted sum of the outputs of all layers before it (DenseFormer).

y_i = Σ_j α_ij·X_j, j = 0 ... i, where X_0 is the input of the first layer, X_j what layer j gives, and y_i the input
of layer i + 1, or what the model gives after the last one. α is trained, and starts as 1 for j = i and 0 for the
others, so that the model starts as one without the average. With a `dilation` k only j that differ from i by a multiple
of k are read; with a `period` p only every p-th layer is followed by an average. With `of_input` the weights of each
token are α + W_2·gelu(W_1·N(X_i)), N the RMSNorm without gain, as many hidden channels as weights, and W_2 = 0 at the
start (MUDD with one way; its four ways give queries, keys, values and residual each an average of their own).

- DenseFormer (arXiv:2402.02622), eqs 1 and 2; https://arxiv.org/abs/2402.02622
- https://github.com/epfml/DenseFormer at c99a623 (`denseformer.py`), run beside a model with dilations and periods in
  double precision: logits and gradients differ by 4e-15. Its outputs that are read alone have a weight (`alone`)
- MUDDFormer (arXiv:2502.12170), section 2 and Table 5, row "+dynamic"; https://github.com/Caiyun-AI/MUDDFormer, whose
  `MultiwayDynamicDenseBlock` was run beside it with one way in double precision: outputs and gradients differ by 2e-14

Shapes: K pack, B batch, T tokens, D width, n sources.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor

from ablate.nn.pack import Linear, Packed, Residual, linear, zeros
from ablate.spec.block import ResidualSpec
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import EMBEDDING, LayerContext, SharedTensor

_EPS = 1e-6


class DepthAverageSpec(ResidualSpec):
    """Each layer starts from a trained weighted sum of the outputs of the layers before it."""

    source = "arXiv:2402.02622 eqs 1, 2"
    differs_by_layer = True

    kind: Literal["depth_average"] = "depth_average"
    dilation: int = Field(default=1, ge=1)
    """k, distance between the outputs that are read."""
    period: int = Field(default=1, ge=1)
    """p, number of layers for each average."""
    of_input: bool = False
    """Whether the weights of a token depend on it, too (MUDD)."""
    alone: bool = False
    """Whether an output that is read alone, as the first k - 1 are, has a trained weight, too (the authors' code)."""

    def before(self, layers: int) -> range:
        """The outputs that are read after this many layers, besides the last one."""
        return range(layers % self.dilation, layers, self.dilation) if self.averages(layers) else range(0)

    def averages(self, layers: int) -> bool:
        """Whether there is an average after this many layers."""
        return layers > 0 and layers % self.period == 0 and (self.alone or layers >= self.dilation)

    def ends(self, context: LayerContext) -> tuple[int, ...]:
        """The numbers of layers after which this layer makes an average: before it, and in the last layer after it."""
        return (context.layer, context.depth) if context.layer == context.depth - 1 else (context.layer,)

    def reads(self, context: LayerContext) -> tuple[SharedTensor, ...]:
        return tuple(context.stream(EMBEDDING + j) for j in self.sources(context))

    def sources(self, context: LayerContext) -> list[int]:
        """The outputs j that this layer reads."""
        return sorted({j for layers in self.ends(context) for j in self.before(layers)})

    def build(self, context: LayerContext) -> DepthAverage:
        return DepthAverage(self, context)

    def cost(self, context: LayerContext, length: int, joins: int) -> Cost:
        """The output of a layer is kept once for all averages."""
        elements = length * context.width
        counts = [len(self.before(layers)) for layers in self.ends(context) if self.averages(layers)]
        read = sum(1 + count for count in counts)
        total = Cost(
            parameters=read,
            multiplications=read * elements,
            additions=(sum(counts) + joins) * elements,
            activations=elements * len(counts),
        )
        for weights in (count + 1 for count in counts if self.of_input):
            maps = linear_cost(length, context.width, weights) + linear_cost(length, weights, weights)
            normed = Cost(multiplications=elements, additions=elements, divisions=elements, activations=length)
            total += (
                maps
                + normed
                + Cost(multiplications=length * weights, additions=length * weights, activations=2 * length * weights)
            )
        return total

    def label(self) -> str:
        return f"Σ α_j{'(x)' * self.of_input} X_j"


class DepthAverage(Residual):
    """The module of `DepthAverageSpec`."""

    def __init__(self, spec: DepthAverageSpec, context: LayerContext) -> None:
        super().__init__()
        self.read = spec.sources(context)
        self.first = _average(spec, context, context.layer)
        self.last = _average(spec, context, context.depth) if context.layer == context.depth - 1 else None

    def start(self, stream: Tensor, shared: tuple[Tensor, ...] = ()) -> Tensor:
        """[K, B, T, D] to the same."""
        return stream if self.first is None else self.first(stream, dict(zip(self.read, shared, strict=True)))

    def finish(self, stream: Tensor, shared: tuple[Tensor, ...] = ()) -> Tensor:
        """[K, B, T, D] to the same."""
        return stream if self.last is None else self.last(stream, dict(zip(self.read, shared, strict=True)))


def _average(spec: DepthAverageSpec, context: LayerContext, layers: int) -> WeightedSum | None:
    """The average after this many layers, if there is one."""
    return WeightedSum(context, spec.before(layers), of_input=spec.of_input) if spec.averages(layers) else None


class WeightedSum(Packed):
    """Σ_j α_j·X_j + α·X; the last α starts as 1, the others as 0.

    Args:
        context: Context of its layer.
        sources: The j of the earlier outputs.
        of_input: Whether α depends on X.
    """

    weight: Tensor

    def __init__(self, context: LayerContext, sources: range, *, of_input: bool = False) -> None:
        super().__init__(context.pack)
        self.sources, count = sources, len(sources) + 1
        self.declare("weight", (count,), _last)
        self.inner = linear(context, context.width, count) if of_input else None
        self.outer = Linear(context.pack, count, count, initial=zeros) if of_input else None

    def forward(self, own: Tensor, before: dict[int, Tensor]) -> Tensor:
        """The last output [K, B, T, D] and the earlier ones to the sum."""
        read = [*(before[j] for j in self.sources), own]
        if self.inner is None or self.outer is None:
            weights = self.weight.view(self.pack, -1, 1, 1, 1).unbind(1)
        else:
            made = self.outer(F.gelu(self.inner(F.rms_norm(own, own.shape[-1:], eps=_EPS))))
            weights = (made + self.weight[:, None, None]).unsqueeze(-2).unbind(-1)
        total = weights[-1] * own
        for weight, x in zip(weights[:-1], read[:-1], strict=True):
            total = total + weight * x
        return total


def _last(values: Tensor, generator: Generator) -> Tensor:
    """1 for the last, 0 for the others."""
    return values.copy_(torch.arange(len(values)) == len(values) - 1)

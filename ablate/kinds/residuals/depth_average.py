"""Depth-weighted average: each layer starts from a weighted sum of the outputs of all layers before it (DenseFormer).

y_i = Σ_j α_ij·X_j, j = 0 ... i, where X_0 is the input of the first layer, X_j what layer j gives, and y_i the input
of layer i + 1, or what the model gives after the last one. α is trained, and starts as 1 for j = i and 0 for the
others, so that the model starts as one without the average. With a `dilation` k only j that differ from i by a multiple
of k are read; with a `period` p only every p-th layer is followed by an average. With `of_input` the weights of each
token are α + W_2·gelu(W_1·N(X_i)), N the RMSNorm without gain and W_2 = 0 at the start (MUDD). With four `ways`
queries, keys, values and the skip each have an average of their own, and the first three a norm of their own; after the
last layer there is one. W_1 has as many columns as all ways have weights.

- DenseFormer (arXiv:2402.02622), eqs 1 and 2; https://arxiv.org/abs/2402.02622
- https://github.com/epfml/DenseFormer at c99a623 (`denseformer.py`), run beside a model with dilations and periods in
  double precision: logits and gradients differ by 4e-15. Its outputs that are read alone have a weight (`alone`)
- MUDDFormer (arXiv:2502.12170), section 2 and Table 5, row "+dynamic"; https://github.com/Caiyun-AI/MUDDFormer, whose
  `MUDDFormer` was run beside a model with four ways in double precision: logits differ by
  4e-15, gradients by 1e-14 of their size. It rounds hidden channels to 64 and expands them fourfold in the last layer;
  here all layers have as many columns for each source

Shapes: K pack, B batch, T tokens, D width, n sources, w ways.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor

from ablate.kinds.residuals import check_every_join
from ablate.nn.pack import Linear, Packed, Residual, Sublayer, linear, zeros
from ablate.spec.base import Spec, refusal
from ablate.spec.block import BlockSpec, ResidualSpec
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import EMBEDDING, LayerContext, SharedTensor

_EPS = 1e-6
_ONE_STREAM = 4
"""Number of axes of a stream [K, B, T, D]."""


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
    ways: Literal[1, 4] = 1
    """Averages at the start of a layer: one, or one each for queries, keys, values and the skip (MUDD)."""
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

    def separates_inputs(self, context: LayerContext) -> bool:
        return self.ways > 1 and self.averages(context.layer)

    def check_block(self, block: BlockSpec) -> None:
        """With four ways, refuse a convolution of the one input of the mixer, and a mixer that is not the first."""
        if self.ways == 1:
            return
        check_every_join(self, block)
        for path, value, plain, rule in (
            (("arrangement",), block.arrangement, "sequential", "the mixer is the first of the two sub-layers"),
            (("convolutions", "before_mixer"), block.convolutions.before_mixer, None, "the mixer has three inputs"),
        ):
            if value != plain:
                given = value.canonical() if isinstance(value, Spec) else value
                raise refusal(path, given, f"with four ways of {self.kind_name()} {rule}", "Set `residual.ways: 1`.")

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
        total = Cost(additions=joins * elements)
        for layers in self.ends(context):
            if not self.averages(layers):
                continue
            ways, count = self.ways_after(layers, context), len(self.before(layers)) + 1
            weights = ways * count
            total += Cost(
                parameters=weights,
                multiplications=weights * elements,
                additions=(weights - ways) * elements,
                activations=elements * (1 + (ways > 1)),  # the norms keep the inputs of queries, keys and values
            )
            if self.of_input:
                hidden = self.ways * count
                maps = linear_cost(length, context.width, hidden) + linear_cost(length, hidden, weights)
                normed = Cost(multiplications=elements, additions=elements, divisions=elements, activations=length)
                made = Cost(
                    multiplications=length * hidden, additions=length * weights, activations=length * (hidden + weights)
                )
                total += maps + normed + made
        return total

    def ways_after(self, layers: int, context: LayerContext) -> int:
        """Number of averages after this many layers."""
        return 1 if layers == context.depth else self.ways

    def label(self) -> str:
        return f"Σ α_j{'(x)' * self.of_input} X_j{', for Q, K, V and skip' * (self.ways > 1)}"


class DepthAverage(Residual):
    """The module of `DepthAverageSpec`."""

    def __init__(self, spec: DepthAverageSpec, context: LayerContext) -> None:
        super().__init__()
        self.read = spec.sources(context)
        self.first = _average(spec, context, context.layer)
        self.last = _average(spec, context, context.depth) if context.layer == context.depth - 1 else None

    def start(self, stream: Tensor, shared: tuple[Tensor, ...] = ()) -> Tensor:
        """[K, B, T, D] to the same, or to [K, B, T, 4, D]."""
        return stream if self.first is None else self.first(stream, dict(zip(self.read, shared, strict=True)))

    def enter(self, stream: Tensor, part: Sublayer) -> Tensor:
        """[K, B, T, D], or [K, B, T, 4, D] to [K, B, T, 3, D]."""
        return stream[..., :3, :] if stream.dim() > _ONE_STREAM else stream

    def join(self, stream: Tensor, branch: Tensor, skip: Callable[[Tensor], Tensor], part: Sublayer) -> Tensor:
        """[K, B, T, D], or [K, B, T, 4, D], and the output of the sub-layer to [K, B, T, D]."""
        return branch + skip(stream[..., 3, :] if stream.dim() > _ONE_STREAM else stream)

    def finish(self, stream: Tensor, shared: tuple[Tensor, ...] = ()) -> Tensor:
        """[K, B, T, D] to the same."""
        return stream if self.last is None else self.last(stream, dict(zip(self.read, shared, strict=True)))


def _average(spec: DepthAverageSpec, context: LayerContext, layers: int) -> WeightedSum | None:
    """The average after this many layers, if there is one."""
    return WeightedSum(spec, context, layers) if spec.averages(layers) else None


class WeightedSum(Packed):
    """Σ_j α_j·X_j + α·X for each way; the last α starts as 1, the others as 0.

    Args:
        context: Context of its layer.
        layers: Number of layers before it.
    """

    weight: Tensor

    def __init__(self, spec: DepthAverageSpec, context: LayerContext, layers: int) -> None:
        super().__init__(context.pack)
        self.sources, self.ways = spec.before(layers), spec.ways_after(layers, context)
        count = len(self.sources) + 1
        hidden, weights = spec.ways * count, self.ways * count
        self.declare("weight", (self.ways, count) if self.ways > 1 else (count,), _last)
        self.inner = linear(context, context.width, hidden) if spec.of_input else None
        self.outer = Linear(context.pack, hidden, weights, initial=zeros) if spec.of_input else None

    def forward(self, own: Tensor, before: dict[int, Tensor]) -> Tensor:
        """The last output [K, B, T, D] and the earlier ones to the sum, or to the sums of all ways [K, B, T, w, D]."""
        read = [*(before[j] for j in self.sources), own]
        weights = self.weight.view(self.pack, 1, 1, -1)
        if self.inner is not None and self.outer is not None:
            weights = self.outer(F.gelu(self.inner(F.rms_norm(own, own.shape[-1:], eps=_EPS)))) + weights
        sums = [_weighted_sum(one.unsqueeze(-2).unbind(-1), read) for one in weights.chunk(self.ways, -1)]
        return sums[0] if self.ways == 1 else torch.stack(sums, -2)


def _weighted_sum(weights: Sequence[Tensor], read: Sequence[Tensor]) -> Tensor:
    """The weighted sum; the last one is its first term."""
    total = weights[-1] * read[-1]
    for weight, x in zip(weights[:-1], read[:-1], strict=True):
        total = total + weight * x
    return total


def _last(values: Tensor, generator: Generator) -> Tensor:
    """1 for the last, 0 for the others."""
    return values.copy_(torch.arange(values.shape[-1]) == values.shape[-1] - 1)

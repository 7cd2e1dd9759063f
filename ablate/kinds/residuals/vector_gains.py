"""Residuals with a trained vector for each sub-layer.

`layer_scale`: y = x + γ ∘ f(x), where γ is a trained vector for each sub-layer, initially small.

- Going deeper with Image Transformers (arXiv:2103.17239), eq. 4; https://arxiv.org/abs/2103.17239

`normalised`: the stream stays on the unit sphere. h ← N(h + |α| ∘ (N(f(h)) - h)), N divides by
the 2-norm.

α is a trained vector for each sub-layer, initially 0.05; it is stored as 1/√D, and multiplied by 0.05·√D in use. The
block needs no other norm. The other parts of nGPT (unit rows of all matrices; scaled queries, keys, hidden units and
logits) are not part of this residual.

- nGPT: Normalized Transformer (arXiv:2410.01131), eqs 10 and 11; https://arxiv.org/abs/2410.01131

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, cast

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ablate.kinds.residuals import check_every_join
from ablate.nn.pack import Packed, Residual, Sublayer, constant
from ablate.spec.base import refusal
from ablate.spec.block import BlockSpec, ResidualSpec
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext

_BY_DEPTH = ((18, 0.1), (24, 1e-5))
_DEEPER = 1e-6


class LayerScaleSpec(ResidualSpec):
    """The output of each sub-layer is multiplied by a trained vector before it is added to the stream."""

    source = "arXiv:2103.17239 eq. 4"

    kind: Literal["layer_scale"] = "layer_scale"
    init: float | None = Field(default=None, gt=0)
    """Initial value of γ. Unless set, by the depth as in the paper: 0.1 up to 18 blocks, 1e-5 up to 24, then 1e-6."""

    def initial(self, depth: int) -> float:
        """The value at the start of training, in a model of `depth` blocks."""
        return self.init or next((value for most, value in _BY_DEPTH if depth <= most), _DEEPER)

    def check_block(self, block: BlockSpec) -> None:
        check_every_join(self, block)

    def build(self, context: LayerContext) -> LayerScale:
        return LayerScale(self, context)

    def cost(self, context: LayerContext, length: int, joins: int) -> Cost:
        """A trained vector keeps its input."""
        elements = len(context.sublayers) * length * context.width
        return Cost(
            parameters=len(context.sublayers) * context.width,
            multiplications=elements,
            additions=joins * length * context.width,
            activations=elements,
        )

    def label(self) -> str:
        return "x + γ∘f(x)"


class LayerScale(Residual):
    """The module of `LayerScaleSpec`."""

    def __init__(self, spec: LayerScaleSpec, context: LayerContext) -> None:
        super().__init__()
        start = spec.initial(context.depth)
        self.scales = nn.ModuleDict(
            {part: VectorGain(context.pack, context.width, start) for part in context.sublayers}
        )

    def join(self, stream: Tensor, branch: Tensor, skip: Callable[[Tensor], Tensor], part: Sublayer) -> Tensor:
        scaled: Tensor = self.scales[part](branch)
        return scaled + skip(stream)


class VectorGain(Packed):
    """γ [K, D]."""

    value: Tensor

    def __init__(self, pack: int, width: int, init: float) -> None:
        super().__init__(pack)
        self.declare("value", (width,), constant(init))

    def forward(self, x: Tensor) -> Tensor:
        """[K, B, T, D] times the vector."""
        return x * self.value[:, None, None]


class NormalisedSpec(ResidualSpec):
    """Each sub-layer moves the stream on the unit sphere towards its output."""

    source = "arXiv:2410.01131 eqs 10, 11"
    differs_by_layer = True

    kind: Literal["normalised"] = "normalised"
    init: float = Field(default=0.05, gt=0)
    """Initial value of α."""

    def check_block(self, block: BlockSpec) -> None:
        check_every_join(self, block, gains=False)
        for norm in block.norms:
            if norm.present:
                raise refusal(
                    ("norm",),
                    norm.kind_name(),
                    "the residual normalised normalises the stream and the output of each sub-layer itself",
                    "Set `norm: none` beside `residual: normalised`.",
                )

    def build(self, context: LayerContext) -> Normalised:
        return Normalised(self, context)

    def cost(self, context: LayerContext, length: int, joins: int) -> Cost:
        """Kept: the inputs of each norm and of the product with α."""
        elements, count = length * context.width, len(context.sublayers)
        norms = 2 * count + (context.layer == 0)
        return Cost(
            parameters=count * context.width,
            multiplications=norms * elements + 2 * count * elements,
            additions=norms * elements + 2 * count * elements,
            divisions=norms * elements,
            activations=(norms + 2 * count) * elements,
        )

    def label(self) -> str:
        return "on the unit sphere"


class Normalised(Residual):
    """The module of `NormalisedSpec`."""

    def __init__(self, spec: NormalisedSpec, context: LayerContext) -> None:
        super().__init__()
        stored = 1 / math.sqrt(context.width)
        self.factor = spec.init / stored
        self.rates = nn.ModuleDict(
            {part: VectorGain(context.pack, context.width, stored) for part in context.sublayers}
        )

    def open(self, x: Tensor) -> Tensor:
        """[K, B, T, D] to the unit sphere."""
        return F.normalize(x, dim=-1)

    def join(self, stream: Tensor, branch: Tensor, skip: Callable[[Tensor], Tensor], part: Sublayer) -> Tensor:
        rate = self.factor * cast(VectorGain, self.rates[part]).value.abs()[:, None, None]
        return F.normalize(stream + rate * (F.normalize(branch, dim=-1) - stream), dim=-1)

"""The residual of nGPT: the stream stays on the unit sphere. h ← N(h + |α| ∘ (N(f(h)) - h)), N divides by the 2-norm.

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
from ablate.kinds.residuals.layer_scale import VectorGain
from ablate.nn.pack import Residual, Sublayer
from ablate.spec.base import refusal
from ablate.spec.block import BlockSpec, ResidualSpec
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext


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

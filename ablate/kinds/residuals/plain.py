"""The plain residual: y = α·x + β·f(x), with the gains and skips of the block.

- Deep Residual Learning (arXiv:1512.03385), eq. 1; https://arxiv.org/abs/1512.03385
"""

from __future__ import annotations

from typing import Literal

from ablate.nn.pack import Residual
from ablate.spec.block import ResidualSpec
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext


class PlainResidualSpec(ResidualSpec):
    """A skip is added to each branch."""

    source = "arXiv:1512.03385 eq. 1"

    kind: Literal["plain"] = "plain"

    def build(self, context: LayerContext) -> Residual:
        return Residual()

    def cost(self, context: LayerContext, length: int, joins: int) -> Cost:
        return Cost(additions=joins * length * context.width)

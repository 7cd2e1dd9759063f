"""No positions: a model can infer them only from its mixers, such as from the causal mask of attention.

- Transformer Language Models without Positional Encodings Still Learn Positional Information (arXiv:2203.16634)
"""

from __future__ import annotations

from typing import Literal

from torch import nn

from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext, PositionSpec


class NoPositionsSpec(PositionSpec):
    """No positions."""

    source = "arXiv:2203.16634"
    applied = "nowhere"

    kind: Literal["none"] = "none"

    def build(self, context: LayerContext) -> nn.Identity:
        """A module that is never called."""
        return nn.Identity()

    def cost(self, context: LayerContext, length: int, *, key_heads: int = 0, pairs: int = 0) -> Cost:
        return Cost()

"""The maximal update parametrisation (μP) for Adam: rates tuned at a small width hold at a large one.

With m = D/D_base: W ~ N(0, σ²/m) and rate η/m for hidden matrices, N(0, σ²) and rate η for embeddings and heads, logits
divided by m; gains and biases keep η. Either the width of attention heads must be fixed (`head_width`), or their scores
must be divided by it instead of its square root.

- Tensor Programs V (arXiv:2203.03466), Table 8; https://arxiv.org/abs/2203.03466
- https://github.com/EleutherAI/nanoGPT-mup, model.py

Shapes: D width.
"""

from __future__ import annotations

import math
from abc import ABC
from typing import Literal

from pydantic import Field

from ablate.nn.pack import normal
from ablate.spec.layer import Initial, InitialiserSpec, LayerContext, ParameterInfo, RateScaling, Role


class WidthScaledSpec(InitialiserSpec, ABC):
    """Initial values and logits scaled by the width relative to that of a base model."""

    scales_rates = True

    base_width: int = Field(default=256, ge=1)
    """D_base, the width at which nothing is scaled."""

    def times_wider(self, context: LayerContext) -> float:
        """m, the width relative to that of the base model."""
        return context.width / self.base_width

    def initial(self, role: Role, inputs: int, outputs: int, context: LayerContext) -> Initial:
        hidden = role in ("hidden", "output")
        return normal(context.init_std / math.sqrt(self.times_wider(context)) if hidden else context.init_std)

    def logit_scale(self, context: LayerContext) -> float:
        return 1 / self.times_wider(context)


class MuPSpec(WidthScaledSpec):
    """Initial values, rates and logits scaled by the width relative to that of a base model."""

    source = "arXiv:2203.03466 Table 8"

    kind: Literal["mup"] = "mup"

    def scaling(self, parameter: ParameterInfo, context: LayerContext) -> RateScaling:
        return RateScaling(lr=1 / self.times_wider(context)) if parameter.role == "matrix" else RateScaling()

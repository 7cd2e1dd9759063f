"""CompleteP: rates tuned at a small width and depth hold at a large one, and every layer keeps learning features.

With m = D/D_base, l = L/L_base and α = 1: as `mup`, and the output of each sub-layer is multiplied by l^(-α), the rates
of all parameters inside blocks by l^(α - 1), with SGD by l^(2α - 1), and the ε of Adam by l^(-α)/m. The weight decay is
divided by the factor of the width in the rate, so that of hidden matrices with Adam is multiplied by m; with SGD it is
also divided by that of the depth.

- Don't be lazy: CompleteP enables compute-efficient deep transformers (arXiv:2505.01618), Table 1;
  https://arxiv.org/abs/2505.01618
- https://github.com/EleutherAI/nanoGPT-mup, branch completep

Shapes: D width, L blocks.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ablate.kinds.initialisers.mup import WidthScaledSpec
from ablate.spec.layer import LayerContext, ParameterInfo, RateScaling, StepGrowth


class CompletePSpec(WidthScaledSpec):
    """Initial values, rates, branches, logits, ε and decay scaled by width and depth relative to a base model."""

    source = "arXiv:2505.01618 Table 1"
    scales_depth = True

    kind: Literal["complete_p"] = "complete_p"
    base_depth: int = Field(default=2, ge=1)
    """L_base, the number of blocks at which nothing is scaled."""
    alpha: float = Field(default=1.0, ge=0.5, le=1)
    """α, the exponent of the depth."""

    def times_deeper(self, context: LayerContext) -> float:
        """l, the depth relative to that of the base model."""
        return context.depth / self.base_depth

    def scaling(self, parameter: ParameterInfo, growth: StepGrowth, context: LayerContext) -> RateScaling:
        wider, deeper = self.times_wider(context), self.times_deeper(context)
        depth = growth.depth(self.alpha) if parameter.layer is not None else 0.0
        return RateScaling(
            lr=wider**growth.width * deeper**depth,
            weight_decay=wider**-growth.width * deeper ** -max(0.0, depth),
            eps=deeper**-self.alpha / wider,
        )

    def branch_scale(self, context: LayerContext) -> float:
        scale: float = self.times_deeper(context) ** -self.alpha
        return scale

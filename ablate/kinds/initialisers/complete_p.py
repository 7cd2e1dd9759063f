"""CompleteP: rates tuned at a small width and depth hold at a large one, and every layer keeps learning features.

With m = D/D_base and l = L/L_base: as `mup`, and what each sub-layer gives is multiplied by l^(-α), the rates of all
that is inside the blocks by l^(α - 1), the ε of Adam by l^(-α)/m, and the decoupled decay of hidden matrices by m;
α = 1.

- Don't be lazy: CompleteP enables compute-efficient deep transformers (arXiv:2505.01618), Table 1;
  https://arxiv.org/abs/2505.01618
- https://github.com/EleutherAI/nanoGPT-mup, branch completep

Shapes: D width, L blocks.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from ablate.nn.pack import normal
from ablate.spec.initialiser import Initial, InitialiserSpec, RateScaling, Role
from ablate.spec.layer import LayerContext
from ablate.spec.parameter import ParameterInfo


class CompletePSpec(InitialiserSpec):
    """Initial values, rates, branches, logits, ε and decay scaled by width and depth over those of a base model."""

    source = "arXiv:2505.01618 Table 1"
    scales_rates = True

    kind: Literal["complete_p"] = "complete_p"
    base_width: int = Field(default=256, ge=1)
    """D_base, the width at which nothing is scaled."""
    base_depth: int = Field(default=2, ge=1)
    """L_base, the number of blocks at which nothing is scaled."""
    alpha: float = Field(default=1.0, ge=0.5, le=1)
    """α."""

    def times_wider(self, context: LayerContext) -> float:
        """m."""
        return context.width / self.base_width

    def times_deeper(self, context: LayerContext) -> float:
        """l."""
        return context.depth / self.base_depth

    def initial(self, role: Role, inputs: int, outputs: int, context: LayerContext) -> Initial:
        hidden = role in ("hidden", "output")
        return normal(context.init_std / math.sqrt(self.times_wider(context)) if hidden else context.init_std)

    def scaling(self, parameter: ParameterInfo, context: LayerContext) -> RateScaling:
        wider, deeper = self.times_wider(context), self.times_deeper(context)
        is_matrix = parameter.role == "matrix"
        in_block = deeper ** (self.alpha - 1) if parameter.layer is not None else 1.0
        return RateScaling(
            lr=in_block / wider if is_matrix else in_block,
            weight_decay=wider if is_matrix else 1.0,
            eps=deeper**-self.alpha / wider,
        )

    def branch_scale(self, context: LayerContext) -> float:
        scale: float = self.times_deeper(context) ** -self.alpha
        return scale

    def logit_scale(self, context: LayerContext) -> float:
        return 1 / self.times_wider(context)

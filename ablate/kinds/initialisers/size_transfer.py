"""Rates that were tuned at a small size hold at a large one: the maximal update parametrisation (μP), and CompleteP.

μP, with m = D/D_base: W ~ N(0, σ²/m) for hidden matrices, N(0, σ²) for embeddings and heads, logits divided by m.
Rates:

| optimizer | hidden matrices | embeddings, heads, gains, biases |
|---|---|---|
| Adam, AdamW, Lion, SOAP | η/m | η |
| Muon | η, and η/√m with `adjust: match_rms_adamw` | those of its AdamW |
| SGD | η | η m, and their weight decay divided by m |

Either the width of attention heads must be fixed (`head_width`), or their scores must be divided by it instead of its
square root.

CompleteP, by which every layer keeps learning features at any depth, with l = L/L_base and α = 1: as `mup`, and the
output of each sub-layer is multiplied by l^(-α), the rates of all parameters inside blocks by l^(α - 1), with SGD by
l^(2α - 1), and the ε of Adam by l^(-α)/m. The weight decay is divided by the factor of the width in the rate, so that
that of hidden matrices with Adam is multiplied by m; with SGD it is also divided by that of the depth.

- Tensor Programs V (arXiv:2203.03466), Table 8; Muon: A Spectral Condition for Feature Learning (arXiv:2310.17813),
  eq. 1, and arXiv:2603.00541; https://arxiv.org/abs/2203.03466
- https://github.com/EleutherAI/nanoGPT-mup, model.py; branch completep
- Don't be lazy: CompleteP enables compute-efficient deep transformers (arXiv:2505.01618), Table 1

Shapes: D width, L blocks.
"""

from __future__ import annotations

import math
from abc import ABC
from typing import Literal

from pydantic import Field

from ablate.nn.pack import normal
from ablate.spec.layer import Initial, InitialiserSpec, LayerContext, ParameterInfo, RateScaling, Role, StepGrowth


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

    def scaling(self, parameter: ParameterInfo, growth: StepGrowth, context: LayerContext) -> RateScaling:
        wider = self.times_wider(context)
        return RateScaling(lr=wider**growth.width, weight_decay=wider ** -max(0.0, growth.width))


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

"""The maximal update parametrisation (μP): rates tuned at a small width hold at a large one.

With m = D/D_base: W ~ N(0, σ²/m) for hidden matrices, N(0, σ²) for embeddings and heads, logits divided by m.

Rates:

| optimizer | hidden matrices | embeddings, heads, gains, biases |
|---|---|---|
| Adam, AdamW, Lion, SOAP | η/m | η |
| Muon | η, and η/√m with `adjust: match_rms_adamw` | those of its AdamW |
| SGD | η | η m, and their weight decay divided by m |

Either the width of attention heads must be fixed (`head_width`), or their scores must be divided by it instead of its
square root.

- Tensor Programs V (arXiv:2203.03466), Table 8; Muon: A Spectral Condition for Feature Learning (arXiv:2310.17813),
  eq. 1, and arXiv:2603.00541; https://arxiv.org/abs/2203.03466
- https://github.com/EleutherAI/nanoGPT-mup, model.py

Shapes: D width.
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

"""Normal values; those of projections that write to the residual stream are smaller in deep models.

W ~ N(0, σ²), and W ~ N(0, σ²/N) for output projections, where N = 2L is the number of branches that L blocks add to the
stream, so that the standard deviation is σ/√(2L).

- Language Models are Unsupervised Multitask Learners (GPT-2), section 2.3
- https://github.com/karpathy/nanoGPT, model.py
"""

from __future__ import annotations

import math
from typing import Literal

from ablate.nn.pack import normal
from ablate.spec.layer import Initial, InitialiserSpec, LayerContext, Role


class DepthScaledSpec(InitialiserSpec):
    """N(0, σ²), and N(0, σ²/2L) for the projections that write to the residual stream of L blocks."""

    source = "GPT-2 sec. 2.3"

    kind: Literal["depth_scaled"] = "depth_scaled"

    def initial(self, role: Role, inputs: int, outputs: int, context: LayerContext) -> Initial:
        return normal(context.init_std / math.sqrt(2 * context.depth) if role == "output" else context.init_std)

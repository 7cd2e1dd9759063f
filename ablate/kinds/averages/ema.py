"""`ema`: the exponential moving average of the weights.

- Acceleration of stochastic approximation by averaging (Polyak & Juditsky, 1992); torch.optim.swa_utils
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ablate.spec.average import AverageSpec


class EMASpec(AverageSpec):
    """a ← d·a + (1 - d)·θ, with Adam's bias correction."""

    kind: Literal["ema"] = "ema"
    source = "torch.optim.swa_utils.get_ema_multi_avg_fn; correction as in arXiv:1412.6980, section 3"
    decay: float = Field(default=0.999, gt=0, lt=1)
    """d; about 1/(1 - d) steps are averaged."""
    corrected: bool = True
    """Whether to remove the bias towards the first steps, as Adam does: step t has weight (1 - d)/(1 - d^t). Otherwise
    the average starts as the weights after step 1, as in torch."""

    def weight(self, step: int, steps: int) -> float:
        if self.corrected:
            return (1 - self.decay) / (1 - self.decay**step)
        return 1 - self.decay if step > 1 else 1.0

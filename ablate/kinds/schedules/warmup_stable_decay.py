"""`warmup_stable_decay`: the peak rate for most of the training, then decay."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from ablate.spec.schedule import RisingSpec


class WarmupStableDecaySpec(RisingSpec):
    """The peak rate after the warm-up, then decay to `floor` over the last share `decay` of all steps.

    η_t = η (f + (1 - f) g(p)), p = t/(T + 1), t and T counted from the start of the decay; g(p) is 1 - p, 1 - √p or
    (1 + cos πp)/2.
    """

    kind: Literal["warmup_stable_decay"] = "warmup_stable_decay"
    source = "arXiv:2404.06395 (MiniCPM) sec. 4; 1 - √p: arXiv:2405.18392, Eq. 2"
    decay: float = Field(default=0.2, gt=0, le=1)
    """Share of all steps during which the rate decays; at most the steps that the warm-up leaves."""
    shape: Literal["linear", "sqrt", "cosine"] = "linear"
    """Shape of the decay; `sqrt` is 1 - √p."""
    floor: float = Field(default=0.0, ge=0, le=1)
    """f, the share of the peak rate that is left one step after the last."""

    def factor(self, step: int, steps: int) -> float:
        warmup = self.warmup_length(steps)
        if step <= warmup:
            return step / warmup
        decaying = min(round(self.decay * steps), steps - warmup)
        gone = step - (steps - decaying)
        if gone <= 0:
            return 1.0
        # The last step still moves the parameters: the rate reaches the floor one step after the end.
        part = gone / (decaying + 1)
        left = {"linear": 1 - part, "sqrt": 1 - math.sqrt(part), "cosine": (1 + math.cos(math.pi * part)) / 2}
        return self.floor + (1 - self.floor) * left[self.shape]

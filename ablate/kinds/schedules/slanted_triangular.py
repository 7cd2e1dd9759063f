"""`slanted_triangular`: a short linear rise and a long linear decay, for fine-tuning."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from ablate.spec.schedule import ScheduleSpec


class SlantedTriangularSpec(ScheduleSpec):
    """A linear rise to the peak at step cut = ⌊T·c⌋, then a linear decay to 1/r of the peak.

    p = t/cut before it, 1 - (t - cut)/(cut (1/c - 1)) after it; η_t = η (1 + p (r - 1))/r. ULMFiT combines it with
    different rates for each layer (`rates.layer_decay` of the optimizer).
    """

    kind: Literal["slanted_triangular"] = "slanted_triangular"
    source = "arXiv:1801.06146 (ULMFiT), Eq. 3"
    cut: float = Field(default=0.1, gt=0, lt=1)
    """c, share of the steps during which the rate rises."""
    ratio: float = Field(default=32.0, ge=1)
    """r, the peak rate divided by the lowest rate."""

    def factor(self, step: int, steps: int) -> float:
        cut = max(1, math.floor(steps * self.cut))
        part = step / cut if step < cut else 1 - (step - cut) / max(1e-9, cut * (1 / self.cut - 1))
        return (1 + max(0.0, part) * (self.ratio - 1)) / self.ratio

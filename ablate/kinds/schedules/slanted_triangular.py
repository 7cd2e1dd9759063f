"""`slanted_triangular`: a short way up and a long way down, for fine-tuning."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from ablate.spec.schedule import ScheduleSpec


class SlantedTriangularSpec(ScheduleSpec):
    """Up along a line to the peak at step cut = ⌊T·c⌋, then down along a line to a share 1/r of it.

    p = t/cut before it, 1 - (t - cut)/(cut (1/c - 1)) after it; η_t = η (1 + p (r - 1))/r. With the optimizer's
    `rates.layer_decay` it is what ULMFiT trains with.
    """

    kind: Literal["slanted_triangular"] = "slanted_triangular"
    source = "arXiv:1801.06146 (ULMFiT), Eq. 3"
    cut: float = Field(default=0.1, gt=0, lt=1)
    """c, share of the steps in which the rate rises."""
    ratio: float = Field(default=32.0, ge=1)
    """r, the peak over the lowest rate."""

    def factor(self, step: int, steps: int) -> float:
        cut = max(1, math.floor(steps * self.cut))
        part = step / cut if step < cut else 1 - (step - cut) / max(1e-9, cut * (1 / self.cut - 1))
        return (1 + max(0.0, part) * (self.ratio - 1)) / self.ratio

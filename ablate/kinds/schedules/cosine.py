"""`cosine`: cosine decay."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from ablate.spec.schedule import WarmupSpec


class CosineScheduleSpec(WarmupSpec):
    """Decay to `floor` along half a cosine.

    η_t = η (f + (1 - f) (1 + cos(π t / (T + 1))) / 2), t and T counted from the end of the warm-up.
    """

    kind: Literal["cosine"] = "cosine"
    source = "arXiv:1608.03983 (SGDR), Eq. 5"
    floor: float = Field(default=0.0, ge=0, le=1)
    """f, the share of the peak rate that is left one step after the last."""

    def after(self, step: int, steps: int) -> float:
        """1 - (1 - floor) · (1 - cos(π · step / (steps + 1))) / 2."""
        # The last step still moves the parameters: the cosine reaches the floor one step after the end.
        return 1.0 - (1.0 - self.floor) * ((1 - math.cos(math.pi * (step / (steps + 1)))) / 2)

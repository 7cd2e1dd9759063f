"""`linear`: down along a line."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ablate.spec.schedule import WarmupSpec


class LinearScheduleSpec(WarmupSpec):
    """Down to `floor` along a line.

    η_t = η (1 - (1 - f) t / (T + 1)), t and T counted from the end of the warm-up.
    """

    kind: Literal["linear"] = "linear"
    source = "arXiv:1810.04805 (BERT), §A.2"
    floor: float = Field(default=0.0, ge=0, le=1)
    """Share of the peak that is left one step after the last."""

    def after(self, step: int, steps: int) -> float:
        """1 - (1 - floor) · step / (steps + 1)."""
        # The last step still moves the parameters: the line reaches the floor one step after the end.
        return 1.0 - (1.0 - self.floor) * (step / (steps + 1))

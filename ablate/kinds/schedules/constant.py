"""`constant`: the peak rate after the warm-up."""

from __future__ import annotations

from typing import Literal

from ablate.spec.schedule import WarmupSpec


class ConstantScheduleSpec(WarmupSpec):
    """The peak rate after the warm-up, to the end: η_t = η."""

    kind: Literal["constant"] = "constant"
    source = "common practice"

    def after(self, step: int, steps: int) -> float:
        """1."""
        return 1.0

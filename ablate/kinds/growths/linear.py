"""`linear`: a size that grows by the same amount at each step."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ablate.spec.growth import GrowthSpec


class LinearGrowthSpec(GrowthSpec):
    """The size grows linearly during the first steps, and is full after them.

    As a share of the full size: s_t = s₀ + (1 - s₀)·t/T₀ for t < T₀ = `until`·T, and 1 from T₀ on.
    """

    kind: Literal["linear"] = "linear"
    source = "batch size: arXiv:2005.14165, appendix B; context: arXiv:2108.06084, section 4"
    start: float = Field(default=0.125, gt=0, le=1)
    """s₀, the share of the full size before the first step."""
    until: float = Field(default=0.3, gt=0, le=1)
    """Share of the steps during which the size grows."""

    def share(self, step: int, steps: int) -> float:
        grown = step / (self.until * steps)
        return 1.0 if grown >= 1 else self.start + (1 - self.start) * grown

"""`adamw`: torch's AdamW."""

from __future__ import annotations

from typing import Any, Literal

import torch

from ablate.kinds.optimizers import without_compile_guard
from ablate.kinds.optimizers.adam import AdamBaseSpec

AdamW = without_compile_guard(torch.optim.AdamW)


class AdamWSpec(AdamBaseSpec):
    """Adam with decoupled weight decay.

    m ← β₁m + (1-β₁)g, v ← β₂v + (1-β₂)g², θ ← (1 - ηλ)θ - η m̂ / (√v̂ + ε), with m̂ and v̂ corrected for their bias.
    """

    kind: Literal["adamw"] = "adamw"
    source = "arXiv:1711.05101, Algorithm 2"
    elementwise = True

    def build(self, groups: list[dict[str, Any]], *, capturable: bool) -> torch.optim.Optimizer:
        """Torch's fused AdamW."""
        made: torch.optim.Optimizer = AdamW(groups, fused=True, capturable=capturable)
        return made

    def step_flops(self, parameters: int, width: int) -> float:
        """Moments 3 + 4, denominator 3, update 3, decay 1."""
        return 14.0 * parameters

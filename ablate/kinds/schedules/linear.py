"""`linear`: linear decay."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ablate.spec.schedule import WarmupSpec


class LinearScheduleSpec(WarmupSpec):
    """Linear decay to `floor`.

    η_t = η (1 - (1 - f) t / (T + 1)), t and T counted from the end of the warm-up.
    """

    kind: Literal["linear"] = "linear"
    source = "arXiv:1810.04805 (BERT), §A.2"
    floor: float = Field(default=0.0, ge=0, le=1)
    """f, the share of the peak rate that is left one step after the last."""
    from_zero: bool = Field(default=False, exclude_if=lambda from_zero: not from_zero)
    """Whether the steps are counted from 0, as `transformers` does: the first step has rate 0, the first after the
    warm-up the peak."""

    def factor(self, step: int, steps: int) -> float:
        if not self.from_zero:
            return super().factor(step, steps)
        warmup = self.warmup_length(steps)
        done = step - 1
        return done / warmup if done < warmup else self.after(done - warmup, steps - warmup - 1)

    def after(self, step: int, steps: int) -> float:
        """1 - (1 - floor) · step / (steps + 1)."""
        # The last step still moves the parameters: the line reaches the floor one step after the end.
        return 1.0 - (1.0 - self.floor) * (step / (steps + 1))

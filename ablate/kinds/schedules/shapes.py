"""The schedules: how the rate rises and falls over the steps of a training run."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from ablate.spec.base import refusal
from ablate.spec.schedule import RisingSpec, ScheduleSpec, WarmupSpec


class ConstantScheduleSpec(WarmupSpec):
    """The peak rate after the warm-up, to the end: η_t = η."""

    kind: Literal["constant"] = "constant"
    source = "common practice"

    def after(self, step: int, steps: int) -> float:
        """1."""
        return 1.0


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


class InverseSqrtSpec(RisingSpec):
    """A linear warm-up of W steps, then decay as 1/√t: η_t = η min(t/W, √(W/t)).

    The papers have no peak rate. `transformer`: η_t = η d^(-1/2) min(t^(-1/2), t W^(-3/2)), η = 1 in the paper.
    `long_range_arena`: η_t = η min(1, t/W) / √max(t, W), η being its `learning_rate`. All three have one shape.
    """

    kind: Literal["inverse_sqrt"] = "inverse_sqrt"
    source = "arXiv:1706.03762, Eq. 3; arXiv:2011.04006, train_utils.py (rsqrt_decay)"
    form: Literal["peak", "transformer", "long_range_arena"] = "peak"
    """Meaning of the optimizer's `lr`: the `peak` rate, or the factor η of a paper's form."""
    width: int | None = Field(default=None, ge=1)
    """d of the form `transformer`, the width of the model."""

    @model_validator(mode="after")
    def _width_is_of_one_form(self) -> Self:
        if (self.width is not None) != (self.form == "transformer"):
            raise refusal(
                ("width",),
                self.width,
                "the form `transformer` divides by the root of the width, and no other form does",
                "Add `width`, or leave it out beside `form: peak` and `form: long_range_arena`.",
            )
        return self

    def factor(self, step: int, steps: int) -> float:
        warmup = max(1, self.warmup_length(steps))
        peaks = {"peak": 1.0, "transformer": (self.width or 1) * warmup, "long_range_arena": warmup}
        return min(step / warmup, math.sqrt(warmup / step)) / math.sqrt(peaks[self.form])


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

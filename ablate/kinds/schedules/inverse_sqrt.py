"""`inverse_sqrt`: inverse square root decay, in the forms of the Transformer and of Long Range Arena."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from ablate.spec.base import refusal
from ablate.spec.schedule import RisingSpec


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

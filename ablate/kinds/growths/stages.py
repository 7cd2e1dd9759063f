"""`stages`: a fixed size in each stage of training."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ablate.spec.base import refusal
from ablate.spec.growth import GrowthSpec

_Share = Annotated[float, Field(gt=0, lt=1)]


class StagesGrowthSpec(GrowthSpec):
    """The size is a share of the full size in each stage of training, and full in the last one.

    s_t = s_i while t/T ≤ u_i, for the first such i; 1 after the last u_i.
    """

    kind: Literal["stages"] = "stages"
    source = "context: arXiv:1810.04805, appendix A.2; batch size: arXiv:1711.00489, section 3"
    shares: tuple[_Share, ...] = (0.25, 0.5)
    """s_i, the share of the full size in each stage but the last, ascending."""
    until: tuple[_Share, ...] = (0.3, 0.6)
    """u_i, the share of the steps at which each of these stages ends, ascending."""

    @model_validator(mode="after")
    def _stages_follow_one_another(self) -> Self:
        if len(self.until) != len(self.shares):
            raise refusal(
                ("until",),
                list(self.until),
                f"each stage but the last has an end, and `shares` has {len(self.shares)} such stages",
                "Give as many numbers in `until` as in `shares`.",
            )
        if not self.shares:
            raise refusal(
                ("shares",), [], "there must be a stage before the last one", "Give at least one number in `shares`."
            )
        for name, values in (("shares", self.shares), ("until", self.until)):
            if any(after <= before for before, after in pairwise(values)):
                raise refusal(
                    (name,),
                    list(values),
                    "the numbers of the stages must be ascending",
                    f"Write `{name}` in ascending order, each number once.",
                )
        return self

    def share(self, step: int, steps: int) -> float:
        here = (share for share, end in zip(self.shares, self.until, strict=True) if step <= end * steps)
        return next(here, 1.0)

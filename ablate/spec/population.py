"""`PopulationSpec`: a trial that is trained as one of a population, whose members exchange weights and values."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from ablate.spec.base import Spec, refusal

_MAY_CHANGE = ("training.optimizer.", "training.schedule.")

Positive = Annotated[float, Field(gt=0)]


class ExchangeSpec(Spec):
    """Population based training (arXiv:1711.09846): now and then the worst members take over weights, optimizer and
    values of the best ones, and go on with the values changed a little."""

    size: int = Field(default=8, ge=2, le=1000)
    """Members."""
    every: int = Field(ge=1)
    """Steps between exchanges."""
    ranges: dict[str, tuple[Positive, Positive]] = Field(min_length=1)
    """Paths below `training.optimizer` or `training.schedule`, and the least and greatest value of each. Values are
    drawn evenly on a logarithmic scale, and changed by a fifth up or down."""
    share: float = Field(default=0.25, gt=0, le=0.5)
    """The worst so many take over from the best so many."""
    redraw: float = Field(default=0.25, ge=0, le=1)
    """How probably a value that is taken over is drawn anew, not changed by a fifth."""

    @model_validator(mode="after")
    def _can_exchange(self) -> Self:
        for path, (low, high) in self.ranges.items():
            if not path.startswith(_MAY_CHANGE):
                rule = "what changes while a trial is trained stands below `training.optimizer` or `training.schedule`"
                raise refusal(("ranges", path), [low, high], rule, "Search over other paths with `kind: search`.")
            if not low < high:
                raise refusal(("ranges", path), [low, high], "a range goes up", f"Write `[{high:g}, {low:g}]`.")
        return self

    def clipped(self, path: str, value: float) -> float:
        """A value within its range, to six digits."""
        low, high = self.ranges[path]
        return float(f"{min(max(value, low), high):.6g}")


class PopulationSpec(ExchangeSpec):
    """Which population a trial belongs to, and which of its members it is; a design sets it, no one else needs to."""

    member: int = Field(ge=0)
    """Number of this member."""
    draws: int = Field(default=0, ge=0)
    """Seed of the values that members begin with."""

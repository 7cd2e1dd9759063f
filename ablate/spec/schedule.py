"""`ScheduleSpec`: the base class of learning rate schedules. The kinds are in `ablate/kinds/schedules/`."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from pydantic import Field

from ablate.spec.base import Family, Kinded

SCHEDULES = Family("schedule", package="ablate.kinds.schedules", entry_points="ablate.schedules")


class ScheduleSpec(Kinded):
    """A learning rate schedule. A final subclass adds `kind`, its fields, `factor` and `source`.

    A schedule is one number for each step, so trials with different schedules can share a pack.
    """

    family = SCHEDULES
    default_kind = "linear"
    source: ClassVar[str]
    """Paper and equation."""

    @classmethod
    def facts(cls) -> dict[str, str | bool]:
        """Paper and equation."""
        return {"source": cls.source}

    @abstractmethod
    def factor(self, step: int, steps: int) -> float:
        """Learning rate as a share of its peak, from 0 to 1, at a step counted from 1 to `steps`."""


class WarmupSpec(ScheduleSpec):
    """A schedule with a linear warm-up. A final subclass adds `kind`, its fields, `after` and `source`."""

    warmup: float = Field(default=0.05, ge=0, le=1)
    """Share of the steps in which the rate rises linearly from 0 to its peak."""

    def factor(self, step: int, steps: int) -> float:
        """Learning rate as a share of its peak, from 0 to 1, at a step counted from 1 to `steps`."""
        warmup = round(self.warmup * steps)
        return step / warmup if step <= warmup else self.after(step - warmup, steps - warmup)

    @abstractmethod
    def after(self, step: int, steps: int) -> float:
        """The share at a step counted from 1 to `steps`, both without the warm-up."""

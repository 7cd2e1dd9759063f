"""`ScheduleSpec`: the base class of learning rate schedules. The kinds are in `ablate/kinds/schedules/`."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

from pydantic import Field, model_validator

from ablate.spec.base import Family, PublishedKind, refusal

SCHEDULES = Family("schedule", package="ablate.kinds.schedules", entry_points="ablate.schedules")


class ScheduleSpec(PublishedKind):
    """A learning rate schedule. A final subclass adds `kind`, its fields, `factor` and `source`.

    A schedule is one number for each step, so trials with different schedules can share a pack.
    """

    family = SCHEDULES
    default_kind = "linear"

    def check_steps(self, steps: int) -> None:
        """Refuse a training of this many steps.

        Raises:
            ValidationError: From `refusal`, with the path inside this spec.
        """

    @abstractmethod
    def factor(self, step: int, steps: int) -> float:
        """Learning rate as a share of its peak, from 0 to 1, at a step counted from 1 to `steps`."""


class RisingSpec(ScheduleSpec):
    """A schedule that begins with a warm-up. A final subclass adds `kind`, its fields, `factor` and `source`."""

    warmup: float = Field(default=0.05, ge=0, le=1)
    """Share of the steps in which the rate rises linearly from 0 to its peak."""
    warmup_steps: int | None = Field(default=None, ge=0, exclude_if=lambda steps: steps is None)
    """Steps in which it rises, where they are given instead of a share."""

    @model_validator(mode="after")
    def _has_one_warmup(self) -> Self:
        if self.warmup_steps is not None and self.warmup != type(self).model_fields["warmup"].default:
            raise refusal(
                ("warmup_steps",),
                self.warmup_steps,
                f"the warm-up is a share of the steps or a number of steps, and `warmup` is {self.warmup:g}",
                "Leave one of the two out.",
            )
        return self

    def check_steps(self, steps: int) -> None:
        """Refuse a warm-up in steps that is longer than the training."""
        if self.warmup_steps is not None and self.warmup_steps > steps:
            raise refusal(
                ("warmup_steps",),
                self.warmup_steps,
                f"the rate would never reach its peak in {steps} steps",
                f"Set it to at most {steps}, or give the warm-up as a share: `warmup`.",
            )

    def warmup_length(self, steps: int) -> int:
        """Steps of the warm-up in a training of this many steps."""
        return round(self.warmup * steps) if self.warmup_steps is None else self.warmup_steps


class WarmupSpec(RisingSpec):
    """A linear warm-up, and what follows it. A final subclass adds `kind`, its fields, `after` and `source`."""

    def factor(self, step: int, steps: int) -> float:
        """Learning rate as a share of its peak, from 0 to 1, at a step counted from 1 to `steps`."""
        warmup = self.warmup_length(steps)
        return step / warmup if step <= warmup else self.after(step - warmup, steps - warmup)

    @abstractmethod
    def after(self, step: int, steps: int) -> float:
        """The share at a step counted from 1 to `steps`, both without the warm-up."""

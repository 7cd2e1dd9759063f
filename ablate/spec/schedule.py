"""What follows the steps of training: the learning rate, the size of batches, and the average of the weights.

- Acceleration of stochastic approximation by averaging (Polyak & Juditsky, 1992); torch.optim.swa_utils
- Attention Is All You Need (arXiv:1706.03762), section 6.1: the last 5 checkpoints; https://arxiv.org/abs/1706.03762
- Averaging Weights Leads to Wider Optima (arXiv:1803.05407), Algorithm 1; https://arxiv.org/abs/1803.05407
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, PublishedKind, largest_divisor, refusal

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


_Share = Annotated[float, Field(gt=0, lt=1)]


class GrowthSpec(PublishedKind):
    """A size of the training batches, the batch size or the context, that grows over the steps up to its whole."""

    family = Family("growth")

    multiple: int = Field(default=1, ge=1)
    """Sizes are rounded to multiples of this number, which must divide the whole. Each new size costs a GPU some eager
    steps and the capture of a CUDA graph."""

    def check(self, whole: int) -> None:
        """Refuse a whole that this growth cannot reach.

        Raises:
            ValidationError: From `refusal`, with the path inside this spec.
        """
        if whole % self.multiple:
            raise refusal(
                ("multiple",),
                self.multiple,
                f"sizes are multiples of it, and so must be the whole, {whole}",
                f"Set `multiple: {largest_divisor(whole, self.multiple)}`, or another divisor of {whole}.",
            )

    def size(self, whole: int, step: int, steps: int) -> int:
        """The size at a step counted from 1 to `steps`: a multiple of `multiple`, and at most the whole."""
        return min(whole, self.multiple * max(1, round(self.share(step, steps) * whole / self.multiple)))

    @abstractmethod
    def share(self, step: int, steps: int) -> float:
        """The size as a share of the whole, from 0 to 1, at a step counted from 1 to `steps`.

        It never falls, and it is 1 at the last step.
        """


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


Growth = Annotated[GrowthSpec, OneOf]


@dataclass(frozen=True, slots=True)
class Phase:
    """Successive steps whose batches have one shape.

    Attributes:
        first: The first of these steps, counted from 1.
        batch_size: Sequences in a batch.
        context: Tokens in an input.
    """

    first: int
    last: int
    batch_size: int
    context: int

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.last - self.first + 1


def runs(size: Callable[[int], tuple[int, int]], steps: int) -> Iterator[Phase]:
    """The phases of a training.

    Args:
        size: Batch size and context at a step counted from 1. Neither falls from a step to the next.
        steps: Number of steps.
    """
    first = 1
    while first <= steps:
        here = size(first)
        low, high = first, steps + 1  # `low` has this size; `high` has another one, or is after the last step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if size(middle) == here else (low, middle)
        yield Phase(first, low, *here)
        first = low + 1


class AverageSpec(PublishedKind):
    """A running average of the weights, a ← a + w_t (θ_t - a) after step t, which is evaluated and kept instead of θ.

    Training continues with θ.
    """

    family = Family("average")

    @abstractmethod
    def weight(self, step: int, steps: int) -> float:
        """w_t, from 0 to 1, at a step counted from 1 to `steps`: 0 leaves the average, 1 makes it the weights.

        The first step has weight 1, so that the initial weights have no share.
        """


class EMASpec(AverageSpec):
    """a ← d·a + (1 - d)·θ, with Adam's bias correction."""

    kind: Literal["ema"] = "ema"
    source = "torch.optim.swa_utils.get_ema_multi_avg_fn; correction as in arXiv:1412.6980, section 3"
    decay: float = Field(default=0.999, gt=0, lt=1)
    """d; about 1/(1 - d) steps are averaged."""
    corrected: bool = True
    """Whether to remove the bias towards the first steps, as Adam does: step t has weight (1 - d)/(1 - d^t). Otherwise
    the average starts as the weights after step 1, as in torch."""

    def weight(self, step: int, steps: int) -> float:
        if self.corrected:
            return (1 - self.decay) / (1 - self.decay**step)
        return 1 - self.decay if step > 1 else 1.0


class LastSpec(AverageSpec):
    """The mean of the weights at checkpoints that are evenly spaced over the end of training, up to the last step.

    Before the first checkpoint the current weights are evaluated; after it, the mean of the checkpoints so far.
    """

    kind: Literal["last"] = "last"
    source = "arXiv:1706.03762 sec. 6.1; arXiv:1803.05407 Algorithm 1"
    count: int = Field(default=5, ge=2, le=10_000)
    """Number of checkpoints that are averaged."""
    share: float = Field(default=0.2, gt=0, le=1)
    """Share of the steps, at the end of training, over which the checkpoints are spaced."""

    def weight(self, step: int, steps: int) -> float:
        checkpoints = self.checkpoints(steps)
        if step < checkpoints[0]:
            return 1.0
        return 1 / (1 + checkpoints.index(step)) if step in checkpoints else 0.0

    def checkpoints(self, steps: int) -> list[int]:
        """The steps whose weights are averaged, ascending; fewer than `count` in a short training."""
        gap = self.share * steps / self.count
        return sorted({max(1, steps - round(index * gap)) for index in range(self.count)})


Average = Annotated[AverageSpec, OneOf]

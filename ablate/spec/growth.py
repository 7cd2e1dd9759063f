"""`GrowthSpec`: how the batch size or the context grows during training, and the phases of training that result."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, PublishedKind, largest_divisor, refusal

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

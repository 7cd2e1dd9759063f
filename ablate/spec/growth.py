"""`GrowthSpec`: the base class of growing batch sizes and contexts. The kinds are in `ablate/kinds/growths/`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, Kinded, largest_divisor, refusal

GROWTHS = Family("growth", package="ablate.kinds.growths", entry_points="ablate.growths")


class GrowthSpec(Kinded):
    """A size of the training batches, the batch size or the context, that grows over the steps up to its whole.

    A final subclass adds `kind`, its fields, `share` and `source`.
    """

    family = GROWTHS
    source: ClassVar[str]
    """Paper and section."""

    multiple: int = Field(default=1, ge=1)
    """Sizes are rounded to multiples of this number, which must divide the whole. Each new size costs a GPU some eager
    steps and the capture of a CUDA graph."""

    @classmethod
    def facts(cls) -> dict[str, str | bool]:
        """Paper and section."""
        return {"source": cls.source}

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


Growth = Annotated[GrowthSpec, OneOf]


@dataclass(frozen=True, slots=True)
class Phase:
    """Successive steps whose batches have one shape.

    Attributes:
        first: The first of these steps, counted from 1.
        last: The last of them.
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

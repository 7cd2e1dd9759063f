"""`AverageSpec`: the average of the weights that is evaluated. The kinds are in `ablate/kinds/averages/`."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, ClassVar

from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, Kinded

AVERAGES = Family("average", package="ablate.kinds.averages", entry_points="ablate.averages")


class AverageSpec(Kinded):
    """A running average of the weights, a ← a + w_t (θ_t - a) after step t, which is evaluated and kept in place of θ.

    Training continues with θ. A final subclass adds `kind`, its fields, `weight` and `source`.
    """

    family = AVERAGES
    source: ClassVar[str]
    """Paper and equation."""

    @classmethod
    def facts(cls) -> dict[str, str | bool]:
        """Paper and equation."""
        return {"source": cls.source}

    @abstractmethod
    def weight(self, step: int, steps: int) -> float:
        """w_t, from 0 to 1, at a step counted from 1 to `steps`: 0 leaves the average, 1 makes it the weights.

        The first step has weight 1, so that the initial weights have no share.
        """


Average = Annotated[AverageSpec, OneOf]

"""`DesignSpec`: what every kind of design says of itself. The kinds stand in `ablate/designs/`, one file each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from ablate.spec.base import Family, Kinded, OneOf

if TYPE_CHECKING:
    from ablate.designs.base import Design

DESIGNS = Family("design", package="ablate.designs", entry_points="ablate.designs")


class DesignSpec(Kinded):
    """Which variants, which seeds, in which order."""

    family = DESIGNS
    seeds: int = Field(default=3, ge=1, le=1000)
    """Trials of each variant; the seeds are 0, 1, 2 ..."""

    @abstractmethod
    def build(self, switches: Mapping[str, Sequence[str]], variants: Mapping[str, Mapping[str, str]]) -> Design:
        """The design over these switches (name to settings, the baseline's first) and named variants."""


DesignField = Annotated[DesignSpec, OneOf]

"""What a design is: `DesignSpec` says which, `Design` is an ask/tell object. The kinds stand in `ablate/designs/`.

A design is asked for trials and told how they ended; it knows nothing of who trains them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from ablate.spec.base import Family, Kinded, OneOf

DESIGNS = Family("design", package="ablate.designs", entry_points="ablate.designs")

BASELINE = "baseline"
"""Name of the point with every switch at its first setting."""


@dataclass(frozen=True, slots=True)
class Point:
    """A corner of the space: a name that is unique in the study, and a setting for every switch."""

    name: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A trial that a design asks for."""

    point: Point
    seed: int


class Design(ABC):
    """Proposes trials and learns from their results.

    The same calls with the same results give the same proposals, so a study is resumed by telling a new design what
    the store already holds.
    """

    @abstractmethod
    def points(self) -> list[Point]:
        """Every point that may be proposed, the baseline first, as far as is known before results."""

    @abstractmethod
    def ask(self) -> list[Proposal]:
        """Trials that can start now, in order, each proposed once. Empty: wait for results, or the design is done."""

    @abstractmethod
    def tell(self, point: Point, seed: int, value: float | None) -> None:
        """The objective of a trial; None if it diverged or failed."""


class DesignSpec(Kinded):
    """Which variants, which seeds, in which order."""

    family = DESIGNS
    seeds: int = Field(default=3, ge=1, le=1000)
    """Trials of each variant; the seeds are 0, 1, 2 ..."""

    @abstractmethod
    def build(self, switches: Mapping[str, Sequence[str]], variants: Mapping[str, Mapping[str, str]]) -> Design:
        """The design over these switches (name to settings, the baseline's first) and named variants."""


DesignField = Annotated[DesignSpec, OneOf]

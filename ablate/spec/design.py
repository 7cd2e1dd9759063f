"""What a design is: `DesignSpec` says which, `Design` is an ask/tell object. The kinds stand in `ablate/designs/`.

A design is asked for trials and told how they ended; it knows nothing of who trains them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from ablate.spec.base import Family, Kinded, OneOf

DESIGNS = Family("design", package="ablate.designs", entry_points="ablate.designs")

BASELINE = "baseline"
"""Name of the point with every switch at its first setting."""


@dataclass(frozen=True, slots=True)
class Point:
    """A corner of the space.

    Attributes:
        name: Unique in the study.
        settings: A setting for every switch.
        values: Spec paths and the values that they get after the switches have applied; most designs set none.
    """

    name: str
    settings: Mapping[str, str]
    values: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A trial that a design asks for."""

    point: Point
    seed: int


@dataclass(frozen=True, slots=True)
class PointCost:
    """What a point would need.

    Attributes:
        parameters: Trainable parameters.
        flops: Arithmetic of one trial.
    """

    parameters: int
    flops: float


@dataclass(frozen=True, slots=True)
class DesignContext:
    """What a design may know of its space before anything is trained.

    Attributes:
        switches: Switch to settings, the baseline's first.
        variants: Named variants: switch to setting; switches left out stay at the baseline's.
        direction: Whether a smaller or a larger objective is better.
        margin: How much worse counts as worse, in the unit of the objective.
        refusal: Why a point makes no model; None if it makes one.
        cost: What a point needs; only of points that make a model.
    """

    switches: Mapping[str, Sequence[str]]
    variants: Mapping[str, Mapping[str, str]]
    direction: Literal["minimize", "maximize"]
    margin: float
    refusal: Callable[[Point], str | None]
    cost: Callable[[Point], PointCost]

    @property
    def baseline(self) -> dict[str, str]:
        """Every switch at its first setting."""
        return {switch: settings[0] for switch, settings in self.switches.items()}


class Design(ABC):
    """Proposes trials and learns from their results.

    The same calls with the same results give the same proposals, so a study is resumed by telling a new design what
    the store already holds.
    """

    @abstractmethod
    def points(self) -> list[Point]:
        """Every point that may be proposed, the baseline first, as far as is known before results."""

    def remarks(self) -> Sequence[str]:
        """What a person should know of the design before it runs, a line each: for example aliased effects."""
        return ()

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
    def build(self, context: DesignContext) -> Design:
        """The design over a space.

        Raises:
            SpaceError: The space cannot answer what the design asks.
        """


DesignField = Annotated[DesignSpec, OneOf]

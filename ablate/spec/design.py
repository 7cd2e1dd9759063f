"""What a design is: `DesignSpec` says which, `Design` is an ask/tell object. The kinds stand in `ablate/designs/`.

A design is asked for trials and told how they ended; it knows nothing of who trains them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from ablate.spec.annotations import ByForm, OneOf
from ablate.spec.base import Family, Kinded, Spec, refusal

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
        tuned: The same, of what was tuned for this point, in this study or before it.
        scouts: Whether it is trained only to tune or to time a point of the design, with seeds of its own.
    """

    name: str
    settings: Mapping[str, str]
    values: Mapping[str, JsonValue] = field(default_factory=dict)
    tuned: Mapping[str, JsonValue] = field(default_factory=dict)
    scouts: bool = False


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


def _in_no_file(*keys: str) -> str:
    return ".".join(("design", *keys))


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
        where: Where in the space a key of the design is written, for errors; of no key, where the design is.
        tuned: Name of a point to the spec paths and values that were tuned for it before this study.
        seeds_before: The seeds that the study declared before, one after the other, until results had been seen.
    """

    switches: Mapping[str, Sequence[str]]
    variants: Mapping[str, Mapping[str, str]]
    direction: Literal["minimize", "maximize"]
    margin: float
    refusal: Callable[[Point], str | None]
    cost: Callable[[Point], PointCost]
    where: Callable[..., str] = _in_no_file
    tuned: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    seeds_before: Sequence[int | Mapping[str, int]] = ()

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

    def further(self) -> str:
        """What follows `points` by their results, in words that go on from their number; empty if nothing does."""
        return ""

    def remarks(self) -> Sequence[str]:
        """What a person should know of the design before it runs, a line each: for example aliased effects."""
        return ()

    def waiting(self) -> list[Proposal]:
        """Proposals that are known to follow once others have ended, for an estimate of what is to come."""
        return []

    @abstractmethod
    def ask(self) -> list[Proposal]:
        """Trials that can start now, in order, each proposed once. Empty: wait for results, or the design is done."""

    @abstractmethod
    def tell(self, point: Point, seed: int, value: float | None) -> None:
        """The objective of a trial; None if it diverged, failed or was pruned."""

    @property
    def prunes(self) -> bool:
        """Whether `watch` may end a trial early."""
        return False

    def watch(self, point: Point, seed: int, reached: float, loss: float) -> bool:
        """Hear a validation loss of a trial that runs, or that ran before; whether it is to end now.

        Args:
            point: What is trained.
            seed: Of the trial.
            reached: Share of its steps that the trial has done, 0 to 1.
            loss: Its validation loss there.
        """
        return False

    def timed(self, point: Point, seed: int, tokens_per_second: float) -> None:
        """Hear, before it is told, how fast a trial that finished was trained."""
        return


class SeedsSpec(Spec):
    """Seeds that are added where they may still decide something, with the error rates of the verdicts intact."""

    start: int = Field(ge=2, le=10)
    """Trials of each variant before the first look."""
    max: int = Field(ge=3, le=50)
    """Trials of a variant at the last look."""

    @model_validator(mode="after")
    def _goes_on(self) -> Self:
        if self.max <= self.start:
            rule = f"seeds are added from `start`, which is {self.start}, up to `max`"
            raise refusal(("max",), self.max, rule, f"Set `max` above {self.start}, or give one number of seeds.")
        return self


class DesignSpec(Kinded):
    """Which variants, which seeds, in which order."""

    family = DESIGNS
    seeds: Annotated[Annotated[int, Field(ge=1, le=1000)] | SeedsSpec, ByForm] = 3
    """Trials of each variant, with the seeds 0, 1, 2 ...; or `{start: 3, max: 20}`, which gives further seeds to the
    comparisons that are still undecided."""

    def paths(self) -> tuple[str, ...]:
        """Spec paths that the points of this design set, besides those of the switches."""
        return ()

    def fixed_seeds(self) -> int:
        """The number of seeds, for a design that gives every point the same.

        Raises:
            ValidationError: The seeds are a schedule.
        """
        if isinstance(self.seeds, SeedsSpec):
            rule = f"a {self.kind_name()} design gives every point the same number of seeds"
            raise refusal(("seeds",), self.seeds.model_dump(), rule, f"Set `seeds: {self.seeds.start}`.")
        return self.seeds

    @abstractmethod
    def build(self, context: DesignContext) -> Design:
        """The design over a space.

        Raises:
            SpaceError: The space cannot answer what the design asks.
        """


DesignField = Annotated[DesignSpec, OneOf]

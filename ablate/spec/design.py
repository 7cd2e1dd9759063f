"""`DesignSpec`: the base class of designs, and `Design`, the ask/tell object. The kinds are in `ablate/designs/`.

A design is asked for trials and told their results. It does not know how they are trained.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, JsonValue, model_validator

from ablate.roles import TrialRole
from ablate.spec.annotations import ByForm, OneOf
from ablate.spec.base import Family, Kinded, Spec, refusal

DESIGNS = Family("design", package="ablate.designs", entry_points="ablate.designs")

MOST_SEEDS = 1000
"""Seeds from here on tune and time; no comparison uses them."""

BASELINE = "baseline"
"""Name of the point with every switch at its first setting."""
_AXIS = re.compile(r"@(?=[^@=,]+=)")


def split_axis(name: str) -> tuple[str, str]:
    """A name as the variant and its value on an axis: `mixer=linear@rung=2` as `mixer=linear` and `rung=2`.

    The value is empty for a name without one. A setting may have an `@` in its name, but no `=`: `mixer=linear@2`.
    """
    variant, *value = _AXIS.split(name, 1)
    return variant, "".join(value)


@dataclass(frozen=True, slots=True)
class Point:
    """A combination of settings and values that a design may propose.

    Attributes:
        values: Values of spec paths that are set after the switches; most designs set none.
        tuned: Values of spec paths that were tuned for this point, in this study or before it.
        role: What its trials are for; those that tune, time or confirm have separate seeds.
    """

    name: str
    settings: Mapping[str, str]
    values: Mapping[str, JsonValue] = field(default_factory=dict)
    tuned: Mapping[str, JsonValue] = field(default_factory=dict)
    role: TrialRole = TrialRole.COMPARISON


@dataclass(frozen=True, slots=True)
class Proposal:
    """A point and a seed that a design proposes to train."""

    point: Point
    seed: int


@dataclass(frozen=True, slots=True)
class PointCost:
    """The cost of a point.

    Attributes:
        parameters: Trainable parameters.
        flops: Arithmetic of one trial.
        tokens: That one trial trains on.
        steps: Optimizer steps of one trial.
    """

    parameters: int
    flops: float
    tokens: float = 0.0
    steps: int = 0


def _path_of_key(*keys: str) -> str:
    return ".".join(("design", *keys))


@dataclass(frozen=True, slots=True)
class DesignContext:
    """What a design knows about its space before training.

    Attributes:
        switches: Settings of each switch, the baseline's first.
        variants: Settings of the named variants; other switches are at the baseline's setting.
        direction: Whether a smaller or a larger objective is better.
        margin: The smallest difference that matters, in the unit of the objective.
        refusal: Returns why a point is invalid; None if it is valid.
        cost: Returns the cost of a point that makes a model.
        where: Returns the position of a key of the design in the space file, for errors; without a key, of the design.
        tuned: Values of spec paths that were tuned before this study, by name of the point.
        rates: How the learning rate of a point follows from its size: `tuned` for it, `scaled` by the parametrisation
            of the model, or `given`.
        seeds_before: The seeds that the study declared before, one after the other, until results had been seen.
    """

    switches: Mapping[str, Sequence[str]]
    variants: Mapping[str, Mapping[str, str]]
    direction: Literal["minimize", "maximize"]
    margin: float
    refusal: Callable[[Point], str | None]
    cost: Callable[[Point], PointCost]
    where: Callable[..., str] = _path_of_key
    tuned: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    rates: Literal["tuned", "scaled", "given"] = "given"
    seeds_before: Sequence[int | Mapping[str, int]] = ()

    @property
    def baseline(self) -> dict[str, str]:
        """Every switch at its first setting."""
        return {switch: settings[0] for switch, settings in self.switches.items()}


class Design(ABC):
    """Proposes trials and learns from their results.

    The same calls with the same results give the same proposals. So a study is resumed by telling a new design the
    results in the store.
    """

    @abstractmethod
    def points(self) -> list[Point]:
        """The points that may be proposed, as far as known before results; the baseline first."""

    def further(self) -> str:
        """A phrase on further points that depend on results, to follow the number of `points`; empty if none."""
        return ""

    def warnings(self) -> Sequence[str]:
        """Remarks for the user before the design runs, one line each, such as aliased effects."""
        return ()

    def waiting(self) -> list[Proposal]:
        """Known proposals that wait for other trials to end; used for forecasts."""
        return []

    def further_trials(self) -> int | None:
        """The most trials that results can add to those that were proposed or wait; None: no bound is known."""
        return None

    @abstractmethod
    def ask(self) -> list[Proposal]:
        """Trials that can start now, in order, each once. Empty: wait for results, or the design is complete."""

    @abstractmethod
    def tell(self, point: Point, seed: int, value: float | None) -> None:
        """Report the objective of a trial; None if it diverged, failed or was pruned."""

    @property
    def prunes(self) -> bool:
        """Whether `watch` may end a trial early."""
        return False

    def watch(self, point: Point, seed: int, reached: float, loss: float) -> bool:
        """Report a validation loss of a running or earlier trial; returns whether to end the trial now.

        Args:
            reached: Share of its steps that the trial has done, 0 to 1.
        """
        return False

    def timed(self, point: Point, seed: int, tokens_per_second: float) -> None:
        """Report the training speed of a finished trial; called before `tell`."""
        return


class SeedsSpec(Spec):
    """A schedule that adds seeds to undecided comparisons and preserves the error rates of the verdicts."""

    start: int = Field(ge=2, le=10)
    """Number of trials of each variant before the first look."""
    max: int = Field(ge=3, le=50)
    """Maximum number of trials of a variant, at the last look."""

    @model_validator(mode="after")
    def _goes_on(self) -> Self:
        if self.max <= self.start:
            rule = f"seeds are added from `start`, which is {self.start}, up to `max`"
            raise refusal(("max",), self.max, rule, f"Set `max` above {self.start}, or give one number of seeds.")
        return self


class DesignSpec(Kinded):
    """A design: which variants and seeds are trained, in which order."""

    family = DESIGNS
    plans_points: ClassVar[bool] = True
    """Whether it names all its points before any result."""
    chooses: ClassVar[bool] = False
    """Whether results decide which points it trains, or how often. What they led to has a verdict only from trials with
    the role of a confirmation, on seeds that took no part in the choice. A schedule of seeds is not such a choice."""
    adds_seeds: ClassVar[bool] = False
    """Whether `seeds` may be a schedule, so that undecided comparisons get further seeds."""
    equalises: ClassVar[bool] = False
    """Whether it gives the variants that it compares equal compute itself, so that a space matches nothing besides."""
    seeds: Annotated[Annotated[int, Field(ge=1)] | SeedsSpec, ByForm] = 3
    """Trials of each variant, with the seeds 0, 1, 2 ...; or `{start: 3, max: 20}`, which gives further seeds to the
    comparisons that are still undecided."""
    first_seed: int = Field(default=0, ge=0)
    """The first of these seeds. A study that was planned after seeds 0 to 3 had been seen starts with 4, so that it
    compares others."""

    @model_validator(mode="after")
    def _seeds_are_free(self) -> Self:
        most = self.seeds.max if isinstance(self.seeds, SeedsSpec) else self.seeds
        if self.first_seed + most > MOST_SEEDS:
            rule = f"seeds from {MOST_SEEDS} on tune and time, and this design would reach {self.first_seed + most - 1}"
            if most > MOST_SEEDS:
                raise refusal(("seeds",), self.seeds, rule, f"Set at most {MOST_SEEDS}.")
            raise refusal(("first_seed",), self.first_seed, rule, f"Set at most {MOST_SEEDS - most}.")
        return self

    def declares(self, seed: int) -> bool:
        """Whether it said before any result that comparisons may have this seed."""
        most = self.seeds.max if isinstance(self.seeds, SeedsSpec) else self.seeds
        return self.first_seed <= seed < self.first_seed + most

    @property
    def reference(self) -> str:
        """Name of its first point, with which all others are compared."""
        return BASELINE

    @property
    def finds_best(self) -> bool:
        """Whether it looks for the point with the best objective, which the answer then names."""
        return False

    def paths(self) -> tuple[str, ...]:
        """Spec paths that the points of this design set in addition to those of the switches."""
        return ()

    def fixed_seeds(self) -> int:
        """The number of seeds, for designs with the same number for every point.

        Raises:
            ValidationError: The seeds are a schedule, or do not start with 0.
        """
        if self.first_seed:
            rule = f"a {self.kind_name()} design starts with seed 0"
            raise refusal(("first_seed",), self.first_seed, rule, "Leave `first_seed` out.")
        if isinstance(self.seeds, SeedsSpec):
            rule = f"a {self.kind_name()} design gives every point the same number of seeds"
            raise refusal(("seeds",), self.seeds.model_dump(), rule, f"Set `seeds: {self.seeds.start}`.")
        return self.seeds

    @abstractmethod
    def build(self, context: DesignContext) -> Design:
        """Build the design for a space.

        Raises:
            SpaceError: The space does not fit the design.
        """


DesignField = Annotated[DesignSpec, OneOf]

"""Fractional factorial: few runs that still show each switch's effect on average over the others.

With two settings to every switch the runs are a regular fraction (`ablate.designs.factorial`). With more settings, runs
that make no model, or a number of runs that is no power of two, they are a D-optimal subset of the combinations that
make a model (`ablate.designs.optimal`). `ablate.stats.effects` estimates the effects from the results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ablate.designs.base import DesignContext, DesignSpec, Point, setting_name
from ablate.designs.factorial import Fraction, largest_resolution, smallest_fraction
from ablate.designs.fixed import FixedDesign
from ablate.designs.grid import combinations
from ablate.designs.optimal import d_optimal
from ablate.errors import SpaceError
from ablate.spec.base import refusal
from ablate.stats.effects import independent_columns, model_matrix, terms_of

_RESOLUTIONS = {"III": 3, "IV": 4, "V": 5}
_MOST_CANDIDATES = 20_000
_SHOWN_TERMS = 5
_CLEAR = 1e-6
"""Alias coefficients below this are rounding."""


class FractionalDesign(FixedDesign):
    """Runs of a fraction, and what they cannot tell apart.

    Attributes:
        aliases: Groups of effects that cannot be told apart; `a` is a main effect, `a:b` an interaction.
    """

    def __init__(
        self,
        points: Sequence[Point],
        seeds: Sequence[int],
        refusal: Callable[[Point], str | None],
        summary: str,
        aliases: Sequence[tuple[str, ...]],
    ) -> None:
        super().__init__(points, seeds, refusal)
        self.aliases = tuple(aliases)
        self._summary = summary

    def remarks(self) -> list[str]:
        """See `Design.remarks`: what fraction this is, and its aliases."""
        if not self.aliases:
            return [f"{self._summary}; no effects of one or two switches are aliased."]
        # No equals signs between them: `mixer=linear` has one of its own.
        groups = [f"  {first} from {', '.join(others)}" for first, *others in self.aliases]
        return [f"{self._summary}; these effects cannot be told apart from others:", *groups]


class FractionalSpec(DesignSpec):
    """A fraction of the grid of a chosen resolution.

    III: main effects, aliased with interactions of two switches. IV: main effects clear of those. V: main effects and
    interactions of two switches. A D-optimal subset has as many runs as that needs, and comes as near as its
    combinations let it; `ablate plan` says how near.
    """

    kind: Literal["fractional"] = "fractional"
    resolution: Literal["III", "IV", "V"] = "IV"
    """What can be told apart: `III`, `IV` or `V`."""
    runs: int | None = Field(default=None, ge=2)
    """How many variants to train; if left out, as few as the resolution allows."""

    @model_validator(mode="after")
    def _shows_noise(self) -> Self:
        if self.fixed_seeds() < 2:
            rule = "the noise of effects is seen between seeds, so two are needed"
            raise refusal(("seeds",), self.seeds, rule, "Set `seeds: 2` or more.")
        return self

    def build(self, context: DesignContext) -> FractionalDesign:
        """See `DesignSpec.build`.

        Raises:
            SpaceError: Fewer runs are asked for, or possible, than the resolution needs.
        """
        return self._regular(context) or self._optimal(context)

    def _regular(self, context: DesignContext) -> FractionalDesign | None:
        if any(len(settings) > 2 for settings in context.switches.values()):
            return None
        fraction = self._fraction(len(context.switches))
        if fraction is None:
            return None
        baseline = context.baseline
        rows = [
            {switch: settings[level] for (switch, settings), level in zip(context.switches.items(), run, strict=True)}
            for run in fraction.runs
        ]
        points = [Point(setting_name(row, baseline), row) for row in rows]
        if any(context.refusal(point) is not None for point in points):
            return None
        of = f"{len(points)} of {2 ** len(baseline)} combinations"
        resolution = fraction.resolution
        what = f"a regular fraction of resolution {_roman(resolution)}" if resolution else "the full factorial"
        aliases = fraction.aliases(list(baseline))
        return FractionalDesign(points, range(self.fixed_seeds()), context.refusal, f"{of}, {what}", aliases)

    def _fraction(self, factors: int) -> Fraction | None:
        resolution = _RESOLUTIONS[self.resolution]
        if self.runs is None:
            return smallest_fraction(factors, resolution)
        bits = self.runs.bit_length() - 1
        fraction = largest_resolution(factors, bits, resolution)
        return fraction if fraction is not None and 1 << fraction.bits == self.runs else None

    def _optimal(self, context: DesignContext) -> FractionalDesign:
        count = math.prod(len(settings) for settings in context.switches.values())
        if count > _MOST_CANDIDATES:
            raise SpaceError(
                f"no regular fraction fits, and {count:,} combinations are too many to choose a subset from",
                where=context.where(),
                expected=f"at most {_MOST_CANDIDATES:,}",
                remedy="Leave switches out, or choose `kind: search`.",
            )
        points = [point for point in combinations(context) if context.refusal(point) is None]
        model = _Model.of(context, points)
        if model.unseen_main:
            raise SpaceError(
                f"the combinations that make a model cannot show {_listed(model.unseen_main)}",
                where=context.where(),
                remedy="Leave out a switch that goes only with others, or mend what makes no model (`ablate plan`).",
            )
        needed = min(model.needed(self.resolution), len(points))
        size = min(4 * math.ceil(needed / 4), len(points)) if self.runs is None else self.runs
        if not needed <= size <= len(points):
            raise SpaceError(
                f"a fraction of resolution {self.resolution} over these switches needs {needed} runs, and "
                f"{len(points)} combinations make a model",
                where=context.where("runs"),
                got=str(size),
                remedy=f"Set `runs` between {needed} and {len(points)}, leave it out, or choose a lower resolution.",
            )
        chosen = model.choose(self.resolution, size)
        summary = f"{size} of {len(points)} possible combinations, a D-optimal subset and no regular fraction"
        summary += model.clearness(self.resolution, chosen)
        if model.unseen:
            summary += f"; no possible combinations show {_listed(model.unseen)}"
        points = [points[index] for index in chosen]
        return FractionalDesign(points, range(self.fixed_seeds()), context.refusal, summary, model.aliases(chosen))


@dataclass(frozen=True, slots=True)
class _Model:
    """The linear model of a space: what its possible combinations can show.

    Attributes:
        rows: A row for each possible combination; the first column is the mean, columns have mean square 1.
        names: Of the columns but the first.
        main: How many of these are main effects; they come first.
        unseen: Names of effects that no choice of combinations shows.
    """

    rows: NDArray[np.float64]
    names: tuple[str, ...]
    main: int
    unseen: tuple[str, ...]

    @classmethod
    def of(cls, context: DesignContext, points: Sequence[Point]) -> Self:
        terms = terms_of(context.switches, interactions=True)
        effects = model_matrix(context.switches, terms, [point.settings for point in points])
        rows = np.hstack([np.ones((len(points), 1)), effects])
        rows = rows / np.sqrt((rows**2).mean(axis=0))  # so that prior precisions have one unit
        seen, unseen = independent_columns(rows)
        names = [term.name for term in terms]
        main = sum(len(terms[index - 1].settings) == 1 for index in seen if index)
        return cls(rows[:, seen], tuple(names[i - 1] for i in seen if i), main, tuple(names[i - 1] for i in unseen))

    @property
    def unseen_main(self) -> tuple[str, ...]:
        """Main effects among the unseen."""
        return tuple(name for name in self.unseen if ":" not in name)

    def needed(self, resolution: str) -> int:
        """The fewest runs: a run for each estimated term; for IV the bound of fold-over designs (Margolin 1969)."""
        return {"III": 1 + self.main, "IV": 2 * self.main, "V": 1 + len(self.names)}[resolution]

    def clearness(self, resolution: str, chosen: Sequence[int]) -> str:
        """Whether interactions that are not estimated shift the main effects of these runs, for a summary."""
        rows = self.rows[list(chosen)]
        estimated = 1 + (len(self.names) if resolution == "V" else self.main)
        # What a unit of each interaction left out adds to each estimate: the alias matrix.
        shifts = np.linalg.lstsq(rows[:, :estimated], rows[:, estimated:], rcond=None)[0][1 : 1 + self.main]
        mixed = [name for name, shift in zip(self.names, shifts, strict=False) if np.abs(shift).max(initial=0) > _CLEAR]
        if not mixed:
            return ", main effects clear of interactions of two switches"
        return f", main effects not clear of interactions of two switches ({_listed(mixed)} take some of them in)"

    def choose(self, resolution: str, size: int) -> list[int]:
        """The rows of the best subset. III looks at main effects, IV keeps interactions apart, V estimates both."""
        columns = 1 + (self.main if resolution == "III" else len(self.names))
        precision = np.zeros(columns)
        if resolution == "IV":
            precision[1 + self.main :] = 1.0
        return d_optimal(self.rows[:, :columns], size, precision)

    def aliases(self, chosen: Sequence[int]) -> list[tuple[str, ...]]:
        """Each effect that the chosen rows cannot tell from others, with those others."""
        _, explained = independent_columns(self.rows[chosen])
        return [
            (self.names[index - 1], *(self.names[other - 1] for other in others if other))
            for index, others in explained.items()
        ]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_TERMS} more" if len(names) > _SHOWN_TERMS else ""
    return f"{', '.join(names[:_SHOWN_TERMS])}{more}"


def _roman(resolution: int) -> str:
    tens, ones = divmod(resolution, 10)
    return "X" * tens + ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")[ones]

"""Fractional factorial: few runs that estimate the effect of each switch averaged over the others.

If every switch has two settings, the runs are a regular fraction (`ablate.designs.factorial`). With more settings,
invalid combinations, or a number of runs that is not a power of two, they are a D-optimal subset of the valid
combinations (`ablate.designs.factorial`). `ablate.stats.effects` estimates the effects from the results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ablate.designs.base import DesignContext, DesignSpec, FixedDesign, Point, setting_name
from ablate.designs.factorial import Fraction, d_optimal, largest_resolution, smallest_fraction
from ablate.designs.fixed import combinations
from ablate.errors import SpaceError
from ablate.spec.base import refusal
from ablate.stats.effects import independent_columns, model_matrix, terms_of

_RESOLUTIONS = {"III": 3, "IV": 4, "V": 5}
_MOST_CANDIDATES = 20_000
_SHOWN_TERMS = 5
_CLEAR = 1e-6
"""Alias coefficients below this are rounding errors."""


class FractionalDesign(FixedDesign):
    """The runs of a fraction, and their aliases.

    Attributes:
        aliases: Groups of aliased effects; `a` is a main effect, `a:b` an interaction.
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

    def warnings(self) -> list[str]:
        """The fraction and its aliases."""
        if not self.aliases:
            return [f"{self._summary}; no effects of one or two switches are aliased."]
        # Not joined by equals signs, because names such as `mixer=linear` contain them.
        groups = [f"  {first} with {', '.join(others)}" for first, *others in self.aliases]
        return [f"{self._summary}; these effects are aliased with others:", *groups]


class FractionalSpec(DesignSpec):
    """A fraction of the grid with a given resolution.

    III: main effects are estimated, but aliased with two-switch interactions. IV: main effects are not aliased with
    these. V: main effects and two-switch interactions are estimated. A D-optimal subset has the number of runs that the
    resolution needs, and approximates it as far as the valid combinations allow; `ablate plan` shows how well.
    """

    kind: Literal["fractional"] = "fractional"
    resolution: Literal["III", "IV", "V"] = "IV"
    """The resolution: `III`, `IV` or `V`."""
    runs: int | None = Field(default=None, ge=2)
    """Number of variants to train; default: the minimum for the resolution."""

    @model_validator(mode="after")
    def _shows_noise(self) -> Self:
        if self.fixed_seeds() < 2:
            rule = "the noise of effects is estimated between seeds, which needs at least two"
            raise refusal(("seeds",), self.seeds, rule, "Set `seeds: 2` or more.")
        return self

    def build(self, context: DesignContext) -> FractionalDesign:
        """As `DesignSpec.build`.

        Raises:
            SpaceError: The resolution needs more runs than requested or possible.
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
        size = f"{len(points)} of {2 ** len(baseline)} combinations"
        resolution = fraction.resolution
        kind = f"a regular fraction of resolution {_roman(resolution)}" if resolution else "the full factorial"
        aliases = fraction.aliases(list(baseline))
        return FractionalDesign(points, range(self.fixed_seeds()), context.refusal, f"{size}, {kind}", aliases)

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
                f"the valid combinations cannot estimate {_list_names(model.unseen_main)}",
                where=context.where(),
                remedy="Leave out switches that are valid only with others, or fix invalid ones (see `ablate plan`).",
            )
        needed = min(model.needed(self.resolution), len(points))
        size = min(4 * math.ceil(needed / 4), len(points)) if self.runs is None else self.runs
        if not needed <= size <= len(points):
            raise SpaceError(
                f"a fraction of resolution {self.resolution} of these switches needs {needed} runs, and "
                f"{len(points)} combinations are valid",
                where=context.where("runs"),
                got=str(size),
                remedy=f"Set `runs` between {needed} and {len(points)}, leave it out, or choose a lower resolution.",
            )
        chosen = model.choose(self.resolution, size)
        summary = f"{size} of {len(points)} valid combinations, a D-optimal subset, not a regular fraction"
        summary += model.clearness(self.resolution, chosen)
        if model.unseen:
            summary += f"; no valid combinations estimate {_list_names(model.unseen)}"
        points = [points[index] for index in chosen]
        return FractionalDesign(points, range(self.fixed_seeds()), context.refusal, summary, model.aliases(chosen))


@dataclass(frozen=True, slots=True)
class _Model:
    """The linear model of a space: the effects that its valid combinations can estimate.

    Attributes:
        rows: One row for each valid combination. The first column is the mean; columns have mean square 1.
        names: Names of all columns but the first.
        main: Number of main effects, which come first.
        unseen: Names of effects that no subset of combinations can estimate.
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
        rows = rows / np.sqrt((rows**2).mean(axis=0))  # so that prior precisions are comparable
        seen, unseen = independent_columns(rows)
        names = [term.name for term in terms]
        main = sum(len(terms[index - 1].settings) == 1 for index in seen if index)
        return cls(rows[:, seen], tuple(names[i - 1] for i in seen if i), main, tuple(names[i - 1] for i in unseen))

    @property
    def unseen_main(self) -> tuple[str, ...]:
        """Main effects that cannot be estimated."""
        return tuple(name for name in self.unseen if ":" not in name)

    def needed(self, resolution: str) -> int:
        """Minimum number of runs: one for each estimated term; for IV the bound of fold-overs (Margolin 1969)."""
        return {"III": 1 + self.main, "IV": 2 * self.main, "V": 1 + len(self.names)}[resolution]

    def clearness(self, resolution: str, chosen: Sequence[int]) -> str:
        """A phrase on whether interactions that are not estimated bias the main effects of these runs."""
        rows = self.rows[list(chosen)]
        estimated = 1 + (len(self.names) if resolution == "V" else self.main)
        # The alias matrix: the bias of each estimate by a unit of each omitted interaction.
        shifts = np.linalg.lstsq(rows[:, :estimated], rows[:, estimated:], rcond=None)[0][1 : 1 + self.main]
        mixed = [name for name, shift in zip(self.names, shifts, strict=False) if np.abs(shift).max(initial=0) > _CLEAR]
        if not mixed:
            return ", main effects not aliased with two-switch interactions"
        return f", main effects partly aliased with two-switch interactions ({_list_names(mixed)})"

    def choose(self, resolution: str, size: int) -> list[int]:
        """Rows of the best subset. III: main effects; IV: also separated from interactions; V: both are estimated."""
        columns = 1 + (self.main if resolution == "III" else len(self.names))
        precision = np.zeros(columns)
        if resolution == "IV":
            precision[1 + self.main :] = 1.0
        return d_optimal(self.rows[:, :columns], size, precision)

    def aliases(self, chosen: Sequence[int]) -> list[tuple[str, ...]]:
        """Each effect that is aliased in the chosen rows, followed by the effects it is aliased with."""
        _, explained = independent_columns(self.rows[chosen])
        return [
            (self.names[index - 1], *(self.names[other - 1] for other in others if other))
            for index, others in explained.items()
        ]


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_TERMS} more" if len(names) > _SHOWN_TERMS else ""
    return f"{', '.join(names[:_SHOWN_TERMS])}{more}"


def _roman(resolution: int) -> str:
    tens, ones = divmod(resolution, 10)
    return "X" * tens + ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")[ones]

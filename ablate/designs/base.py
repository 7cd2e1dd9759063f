"""What a file in this folder, or a plugin, imports to define a design: names of points, and trials over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ablate.spec.design import BASELINE, Design, DesignContext, DesignSpec, Point, PointCost, Proposal, SeedsSpec
from ablate.spec.fairness import tuned_for
from ablate.stats import SeedPlan, need_more_seeds, seeds_declared

__all__ = [
    "BASELINE",
    "Design",
    "DesignContext",
    "DesignSpec",
    "FixedDesign",
    "Point",
    "PointCost",
    "Proposal",
    "SequentialDesign",
    "named_points",
    "over_seeds",
    "setting_name",
    "settings_key",
]


def setting_name(settings: Mapping[str, str], baseline: Mapping[str, str]) -> str:
    """Name of a point: its differences from the baseline as `switch=setting`, joined by commas."""
    changed = [f"{switch}={setting}" for switch, setting in settings.items() if setting != baseline[switch]]
    return ",".join(changed) or BASELINE


def settings_key(point: Point) -> tuple[tuple[str, object], ...]:
    """A key that is equal for points with equal settings and values, regardless of their names."""
    return (*sorted(point.settings.items()), *sorted(point.values.items()))


def named_points(context: DesignContext) -> list[Point]:
    """The baseline and the named variants of a space."""
    points = [Point(BASELINE, context.baseline)]
    return points + [Point(name, {**context.baseline, **settings}) for name, settings in context.variants.items()]


class FixedDesign(Design):
    """Every valid point with every seed, ordered by seed, so that paired comparisons are available early.

    Args:
        points: The points in the order of the design, the baseline first.
        seeds: The seeds in the order of training.
        refusal: Returns why a point is invalid, or None if it is valid.
    """

    def __init__(self, points: Sequence[Point], seeds: Sequence[int], refusal: Callable[[Point], str | None]) -> None:
        self._points = list(points)
        self._seeds = seeds
        self._refusal = refusal
        self._asked = False

    def points(self) -> list[Point]:
        """All points, including those that are invalid."""
        return list(self._points)

    def further_trials(self) -> int | None:
        return 0

    def ask(self) -> list[Proposal]:
        """Propose everything at the first call."""
        if self._asked:
            return []
        self._asked = True
        possible = [point for point in self._points if self._refusal(point) is None]
        return [Proposal(point, seed) for seed in self._seeds for point in possible]

    def tell(self, point: Point, seed: int, value: float | None) -> None:
        """Ignore the result."""


def over_seeds(
    points: Sequence[Point], spec: DesignSpec, context: DesignContext, groups: Sequence[Sequence[Point]] = ()
) -> Design:
    """The design that trains these points with the seeds of `spec` and with the values that were tuned for them.

    Args:
        points: In the order of training.
        groups: The points that are compared with each other, the baseline of each group first; default: one of all.
    """
    seeds, first = spec.seeds, spec.first_seed
    tuned = {point.name: replace(point, tuned=tuned_for(context.tuned, point.name)) for point in points}
    points = [*tuned.values()]
    if isinstance(seeds, SeedsSpec):
        plan = seeds_declared([*context.seeds_before, seeds.model_dump()])
        assert plan is not None, "the last seeds are a schedule"
        groups = [[tuned[point.name] for point in group] for group in groups] or [points]
        return SequentialDesign(points, seeds.start, plan, context, first, groups)
    return FixedDesign(points, range(first, first + seeds), context.refusal)


class SequentialDesign(FixedDesign):
    """A group-sequential design: all points with the first seeds, then one more seed for undecided comparisons.

    A look is taken when all trials so far have ended. A baseline gets every seed that another point of its group gets.

    Args:
        points: The points in the order of the design.
        start: Number of seeds before the first look.
        context: Gives margin and direction.
        groups: The points that are compared with each other, the baseline of each group first.
    """

    def __init__(
        self,
        points: Sequence[Point],
        start: int,
        schedule: SeedPlan,
        context: DesignContext,
        first: int,
        groups: Sequence[Sequence[Point]],
    ) -> None:
        super().__init__(points, range(first, first + start), context.refusal)
        self._schedule = schedule
        self._context = context
        self._groups = groups
        self._next = first + start
        self._end = first + schedule.max
        self._open: set[tuple[str, int]] = set()
        self._values: dict[str, dict[int, float]] = {point.name: {} for point in points}
        self._diverged: dict[str, dict[int, int | None]] = {}

    def further_trials(self) -> int | None:
        """One for each point and each seed that is left."""
        possible = sum(self._refusal(point) is None for point in self._points)
        return possible * max(0, self._end - self._next)

    def ask(self) -> list[Proposal]:
        """Propose the next seed for undecided points when all previous trials have ended."""
        proposals = super().ask() if not self._asked else self._look()
        self._open |= {(proposal.point.name, proposal.seed) for proposal in proposals}
        return proposals

    def tell(self, point: Point, seed: int, value: float | None) -> None:
        self._open.discard((point.name, seed))
        if value is None:
            self._diverged.setdefault(point.name, {})[seed] = None
        else:
            self._values[point.name][seed] = value

    def _look(self) -> list[Proposal]:
        if self._open or self._next >= self._end:
            return []
        wanted = [point for group in self._groups for point in self._undecided_points(group)]
        if not wanted:
            return []
        seed, self._next = self._next, self._next + 1
        return [Proposal(point, seed) for point in self._points if point in wanted]

    def _undecided_points(self, group: Sequence[Point]) -> list[Point]:
        """The points of a group that need another seed, with their baseline."""
        baseline, *others = (point for point in group if self._refusal(point) is None)
        undecided = need_more_seeds(
            {point.name: self._values[point.name] for point in others},
            self._values[baseline.name],
            margin=self._context.margin,
            direction=self._context.direction,
            schedule=self._schedule,
            diverged=self._diverged,
        )
        return [point for point in (baseline, *others) if undecided and (point is baseline or point.name in undecided)]

"""Seeds of a design whose points are known: the same number for each, or more where a comparison is still undecided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ablate.designs.base import Design, DesignContext, Point, Proposal
from ablate.designs.fixed import FixedDesign
from ablate.spec.design import SeedsSpec

if TYPE_CHECKING:
    from ablate.stats import SeedPlan


def over_seeds(points: Sequence[Point], seeds: int | SeedsSpec, context: DesignContext) -> Design:
    """The design that trains these points with their seeds and with the values that were tuned for them.

    The first point is the baseline.
    """
    points = [replace(point, tuned=context.tuned.get(point.name, {})) for point in points]
    if isinstance(seeds, SeedsSpec):
        from ablate.stats import seeds_declared  # brings scipy, which takes long to import

        plan = seeds_declared([*context.seeds_before, seeds.model_dump()])
        assert plan is not None, "the last seeds are a schedule"
        return SequentialDesign(points, seeds.start, plan, context)
    return FixedDesign(points, range(seeds), context.refusal)


class SequentialDesign(FixedDesign):
    """A group-sequential design: every point with the first seeds, then one seed more for what is still undecided.

    A look is taken when every trial so far has ended. The baseline gets each seed that any other point gets.

    Args:
        points: In the order of the design, the baseline first.
        start: Seeds before the first look.
        schedule: The looks.
        context: What the space says of margin and direction.
    """

    def __init__(self, points: Sequence[Point], start: int, schedule: SeedPlan, context: DesignContext) -> None:
        super().__init__(points, range(start), context.refusal)
        self._schedule = schedule
        self._context = context
        self._next = start
        self._open: set[tuple[str, int]] = set()
        self._values: dict[str, dict[int, float]] = {point.name: {} for point in points}
        self._diverged: dict[str, dict[int, int | None]] = {}

    def ask(self) -> list[Proposal]:
        """See `Design.ask`; the next seed for the points that are undecided, when all trials before it have ended."""
        proposals = super().ask() if not self._asked else self._look()
        self._open |= {(proposal.point.name, proposal.seed) for proposal in proposals}
        return proposals

    def tell(self, point: Point, seed: int, value: float | None) -> None:
        """See `Design.tell`."""
        self._open.discard((point.name, seed))
        if value is None:
            self._diverged.setdefault(point.name, {})[seed] = None
        else:
            self._values[point.name][seed] = value

    def _look(self) -> list[Proposal]:
        if self._open or self._next >= self._schedule.max:
            return []
        baseline, *others = (point for point in self._points if self._refusal(point) is None)
        from ablate.stats import need_more_seeds

        wanted = need_more_seeds(
            {point.name: self._values[point.name] for point in others},
            self._values[baseline.name],
            margin=self._context.margin,
            direction=self._context.direction,
            schedule=self._schedule,
            diverged=self._diverged,
        )
        if not wanted:
            return []
        seed, self._next = self._next, self._next + 1
        return [Proposal(point, seed) for point in (baseline, *others) if point is baseline or point.name in wanted]

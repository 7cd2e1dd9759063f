"""Wraps a design: each point is trained again at other lengths, each with its own full schedule.

An early point of a long training is no short training: its learning rate had not decayed yet. So every length is a
training of its own, with the same seeds, and the baseline of that length to compare with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ablate.designs.base import Design, Point, Proposal
from ablate.roles import TrialRole
from ablate.spec.fairness import STEPS, at_budget


class BudgetedDesign(Design):
    """The proposals of another design, and those of the same points and seeds at other lengths.

    Results at other lengths do not affect the proposals of the inner design.

    Args:
        inner: The design whose points are compared at each length.
        budgets: Lengths as multiples of the space's; 1 is that of the inner design.
        steps: Optimizer steps of the space.
    """

    def __init__(self, inner: Design, budgets: Sequence[float], steps: int) -> None:
        self._inner = inner
        self._others = [budget for budget in budgets if budget != 1]
        self._steps = steps
        self._lengths: set[str] = set()

    def points(self) -> list[Point]:
        """The points of the inner design, then those at other lengths."""
        inner = self._inner.points()
        return [*inner, *(other for point in inner for other in self._at_others(point))]

    def further(self) -> str:
        return self._inner.further()

    def remarks(self) -> Sequence[str]:
        """The remarks of the inner design, and one on the lengths."""
        lengths = ", ".join(f"{round(budget * self._steps):,}" for budget in self._others)
        said = f"every variant is also trained for {lengths} steps, each with its whole schedule"
        return (*self._inner.remarks(), said)

    def waiting(self) -> list[Proposal]:
        return self._with_others(self._inner.waiting())

    def ask(self) -> list[Proposal]:
        """The proposals of the inner design, each followed by the same at other lengths."""
        return self._with_others(self._inner.ask())

    def tell(self, point: Point, seed: int, value: float | None) -> None:
        if point.name not in self._lengths:
            self._inner.tell(point, seed, value)

    @property
    def prunes(self) -> bool:
        return self._inner.prunes

    def watch(self, point: Point, seed: int, reached: float, loss: float) -> bool:
        return point.name not in self._lengths and self._inner.watch(point, seed, reached, loss)

    def timed(self, point: Point, seed: int, tokens_per_second: float) -> None:
        if point.name not in self._lengths:
            self._inner.timed(point, seed, tokens_per_second)

    def _with_others(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        others = [Proposal(point, proposal.seed) for proposal in proposals for point in self._at_others(proposal.point)]
        return [*proposals, *others]

    def _at_others(self, point: Point) -> list[Point]:
        if point.role is not TrialRole.COMPARISON:
            return []
        made = [
            replace(
                point,
                name=at_budget(point.name, budget),
                values={**point.values, STEPS: max(1, round(budget * self._steps))},
            )
            for budget in self._others
        ]
        self._lengths |= {one.name for one in made}
        return made

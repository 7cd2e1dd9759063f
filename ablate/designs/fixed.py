"""A design whose trials do not depend on results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ablate.designs.base import Design, Point, Proposal


class FixedDesign(Design):
    """Every valid point with every seed, ordered by seed, so that paired comparisons are available early.

    Args:
        points: The points in the order of the design, the baseline first.
        seeds: The seeds in the order of training.
        refusal: Returns why a point makes no model, or None if it makes one.
    """

    def __init__(self, points: Sequence[Point], seeds: Sequence[int], refusal: Callable[[Point], str | None]) -> None:
        self._points = list(points)
        self._seeds = seeds
        self._refusal = refusal
        self._asked = False

    def points(self) -> list[Point]:
        """All points, including those that make no model."""
        return list(self._points)

    def ask(self) -> list[Proposal]:
        """Propose everything at the first call."""
        if self._asked:
            return []
        self._asked = True
        possible = [point for point in self._points if self._refusal(point) is None]
        return [Proposal(point, seed) for seed in self._seeds for point in possible]

    def tell(self, point: Point, seed: int, value: float | None) -> None:
        """Ignore the result."""

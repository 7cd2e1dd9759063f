"""A design whose trials are all known before the first result."""

from __future__ import annotations

from collections.abc import Sequence

from ablate.designs.base import Design, Point, Proposal


class FixedDesign(Design):
    """Every point with every seed. Seed by seed, so that comparisons paired by seed exist early.

    Args:
        points: In the order of the design, the baseline first.
        seeds: In the order of training.
    """

    def __init__(self, points: Sequence[Point], seeds: Sequence[int]) -> None:
        self._points = list(points)
        self._waiting = [Proposal(point, seed) for seed in seeds for point in points]

    def points(self) -> list[Point]:
        """See `Design.points`."""
        return list(self._points)

    def ask(self) -> list[Proposal]:
        """See `Design.ask`; everything at the first call."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def tell(self, point: Point, seed: int, value: float | None) -> None:
        """See `Design.tell`; results change nothing."""

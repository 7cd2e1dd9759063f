"""A design whose trials are all known before the first result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ablate.designs.base import Design, Point, Proposal


class FixedDesign(Design):
    """Every point that makes a model, with every seed. Seed by seed, so that comparisons paired by seed exist early.

    Args:
        points: In the order of the design, the baseline first.
        seeds: In the order of training.
        refusal: Why a point makes no model; None if it makes one.
    """

    def __init__(self, points: Sequence[Point], seeds: Sequence[int], refusal: Callable[[Point], str | None]) -> None:
        self._points = list(points)
        self._seeds = seeds
        self._refusal = refusal
        self._asked = False

    def points(self) -> list[Point]:
        """See `Design.points`; those that make no model are among them."""
        return list(self._points)

    def ask(self) -> list[Proposal]:
        """See `Design.ask`; everything at the first call."""
        if self._asked:
            return []
        self._asked = True
        possible = [point for point in self._points if self._refusal(point) is None]
        return [Proposal(point, seed) for seed in self._seeds for point in possible]

    def tell(self, point: Point, seed: int, value: float | None) -> None:
        """See `Design.tell`; results change nothing."""

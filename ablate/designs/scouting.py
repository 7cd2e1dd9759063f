"""Wraps a design: before a point is trained, auxiliary trials ("scouts") determine how to train it.

Scouts use separate seeds, so that trials that are compared have not been used for tuning.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ablate.designs.base import Design, Point, Proposal


class ScoutingDesign(Design):
    """Holds back the proposals of another design until the scouts of their points have ended.

    Each round first proposes all scouts, then the held proposals in the order of the inner design. So the order in
    which trials end has no effect.

    Args:
        inner: The design whose points need scouts.
    """

    def __init__(self, inner: Design) -> None:
        self._inner = inner
        self._held: list[Proposal] = []
        self._asked: set[str] = set()
        self._open: set[tuple[str, int]] = set()
        self._results: dict[str, dict[int, float | None]] = {}

    @abstractmethod
    def _scouts(self, points: Iterable[Point]) -> Sequence[Proposal]:
        """The scouts that these points need, including those already proposed."""

    def _informed(self, point: Point) -> Point:
        """The point as it is trained, given the results of its scouts."""
        return point

    def points(self) -> list[Point]:
        """The points of the inner design, without scouts."""
        return self._inner.points()

    def further(self) -> str:
        return self._inner.further()

    def remarks(self) -> Sequence[str]:
        return self._inner.remarks()

    def waiting(self) -> list[Proposal]:
        return [*self._held, *self._inner.waiting()]

    def ask(self) -> list[Proposal]:
        """Propose the scouts of a round, then its trials."""
        if self._open:
            return []
        if not self._held:
            self._held = self._inner.ask()
            points = {proposal.point.name: proposal.point for proposal in self._held}
            needed = self._scouts(points.values()) if points else ()
            scouts = [scout for scout in needed if scout.point.name not in self._asked]
            if scouts:
                self._asked |= {scout.point.name for scout in scouts}
                self._open = {(scout.point.name, scout.seed) for scout in scouts}
                return scouts
        held, self._held = self._held, []
        return [Proposal(self._informed(proposal.point), proposal.seed) for proposal in held]

    def tell(self, point: Point, seed: int, value: float | None) -> None:
        if point.name in self._asked:
            self._open.discard((point.name, seed))
            self._results.setdefault(point.name, {})[seed] = value
        else:
            self._inner.tell(self._uninformed(point), seed, value)

    @property
    def prunes(self) -> bool:
        """Whether the inner design prunes; scouts are never pruned."""
        return self._inner.prunes

    def watch(self, point: Point, seed: int, reached: float, loss: float) -> bool:
        return point.name not in self._asked and self._inner.watch(self._uninformed(point), seed, reached, loss)

    def timed(self, point: Point, seed: int, tokens_per_second: float) -> None:
        if point.name not in self._asked:
            self._inner.timed(self._uninformed(point), seed, tokens_per_second)

    def _uninformed(self, point: Point) -> Point:
        """The point as the inner design knows it."""
        return point if point.role.scouts else replace(point, tuned={})

"""A design round another: before a point is trained, scouts are, which say how it shall be trained.

Scouts have seeds that no design uses, so that nothing that is compared has been looked at before.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ablate.designs.base import Design, Point, Proposal


class ScoutingDesign(Design):
    """Holds the proposals of another design back until the scouts of their points have ended.

    All of a round go together: its scouts, and then what they were for, in the order of the design within. So the order
    in which trials end changes nothing.

    Args:
        inner: The design whose points are scouted for.
    """

    def __init__(self, inner: Design) -> None:
        self._inner = inner
        self._held: list[Proposal] = []
        self._asked: set[str] = set()
        self._open: set[tuple[str, int]] = set()
        self._results: dict[str, dict[int, float | None]] = {}

    @abstractmethod
    def _scouts(self, points: Iterable[Point]) -> Sequence[Proposal]:
        """The scouts that these points need, whether they were asked for before or not."""

    def _informed(self, point: Point) -> Point:
        """A point as it shall be trained, now that its scouts have ended."""
        return point

    def points(self) -> list[Point]:
        """See `Design.points`; scouts are not among them."""
        return self._inner.points()

    def further(self) -> str:
        """See `Design.further`."""
        return self._inner.further()

    def remarks(self) -> Sequence[str]:
        """See `Design.remarks`."""
        return self._inner.remarks()

    def waiting(self) -> list[Proposal]:
        """See `Design.waiting`."""
        return [*self._held, *self._inner.waiting()]

    def ask(self) -> list[Proposal]:
        """See `Design.ask`: the scouts of a round, then the round."""
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
        """See `Design.tell`."""
        if point.name in self._asked:
            self._open.discard((point.name, seed))
            self._results.setdefault(point.name, {})[seed] = value
        else:
            self._inner.tell(self._uninformed(point), seed, value)

    @property
    def prunes(self) -> bool:
        """See `Design.prunes`; scouts are trained to their end."""
        return self._inner.prunes

    def watch(self, point: Point, seed: int, reached: float, loss: float) -> bool:
        """See `Design.watch`."""
        return point.name not in self._asked and self._inner.watch(self._uninformed(point), seed, reached, loss)

    def timed(self, point: Point, seed: int, tokens_per_second: float) -> None:
        """See `Design.timed`."""
        if point.name not in self._asked:
            self._inner.timed(self._uninformed(point), seed, tokens_per_second)

    def _uninformed(self, point: Point) -> Point:
        """The point as the design within knows it."""
        return point if point.role.scouts else replace(point, tuned={})

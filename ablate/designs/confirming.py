"""Confirmation, as a wrapper of a design: points chosen by results are trained again with fresh seeds.

The best of many looks better than it is, on the seeds that made it the best. Fresh seeds know nothing of the choice, so
their verdicts are those of comparisons that were declared beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator, Field

from ablate.designs.base import Design, Point, Proposal
from ablate.roles import CONFIRMATION_SEEDS, TrialRole
from ablate.spec.base import refusal


def _no_single_seed(seeds: int) -> int:
    if seeds == 1:
        rule = "one seed shows no spread, and confirms nothing"
        raise refusal((), seeds, rule, "Set `confirm: 5`, or `confirm: 0` to go without.")
    return seeds


ConfirmField = Annotated[int, Field(ge=0, le=100), AfterValidator(_no_single_seed)]
"""How many fresh seeds confirm what a design has chosen; 0: none, and what was chosen has no verdict."""


class ConfirmingDesign(Design):
    """Trains what another design chose, and the baseline, with seeds that took no part in the choice.

    Args:
        inner: The design that chooses.
        baseline: The first point of it.
        seeds: How many confirm.
        chosen: Returns the points to confirm, once the inner design has no further proposals.
    """

    def __init__(self, inner: Design, baseline: Point, seeds: int, chosen: Callable[[], Sequence[Point]]) -> None:
        self._inner = inner
        self._baseline = baseline
        self._seeds = range(CONFIRMATION_SEEDS, CONFIRMATION_SEEDS + seeds)
        self._chosen = chosen
        self._open: set[tuple[str, int]] = set()
        self._asked = False

    def points(self) -> list[Point]:
        return self._inner.points()

    def further(self) -> str:
        return self._inner.further()

    def remarks(self) -> Sequence[str]:
        said = f"what is chosen is then trained with {len(self._seeds)} fresh seeds; only these carry its verdict"
        return (*self._inner.remarks(), said)

    def waiting(self) -> list[Proposal]:
        return self._inner.waiting()

    def ask(self) -> list[Proposal]:
        """The proposals of the inner design, and after its last result those that confirm."""
        proposals = self._inner.ask()
        self._open |= {(proposal.point.name, proposal.seed) for proposal in proposals}
        if proposals or self._open or self._asked:
            return proposals
        self._asked = True
        chosen = self._chosen()
        points = [replace(point, role=TrialRole.CONFIRMATION) for point in (self._baseline, *chosen) if chosen]
        return [Proposal(point, seed) for seed in self._seeds for point in points]

    def tell(self, point: Point, seed: int, value: float | None) -> None:
        """Confirming trials do not change the design."""
        if point.role is not TrialRole.CONFIRMATION:
            self._open.discard((point.name, seed))
            self._inner.tell(point, seed, value)

    @property
    def prunes(self) -> bool:
        return self._inner.prunes

    def watch(self, point: Point, seed: int, reached: float, loss: float) -> bool:
        """Confirming trials are never pruned."""
        return point.role is not TrialRole.CONFIRMATION and self._inner.watch(point, seed, reached, loss)

    def timed(self, point: Point, seed: int, tokens_per_second: float) -> None:
        if point.role is not TrialRole.CONFIRMATION:
            self._inner.timed(point, seed, tokens_per_second)

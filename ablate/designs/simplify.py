"""Simplify: backward elimination by training, with a beam; section 4 of He and Hofmann (2023) as an algorithm.

A component is a switch at its first setting; to remove it is to turn the switch to one of its removing settings. Each
round trains, from every variant in the beam, every variant with one more component removed. Those that are surely not
worse than the baseline by the margin (verdict `not needed`) are acceptable, and the acceptable ones that cost least are
the next beam. It ends when no removal is acceptable. A beam of 1 is greedy; a wider one gets past interactions in which
the cheapest first step leads nowhere.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from ablate.designs.base import (
    BASELINE,
    Design,
    DesignContext,
    DesignSpec,
    Point,
    PointCost,
    Proposal,
    setting_name,
)
from ablate.designs.confirming import ConfirmField, ConfirmingDesign
from ablate.errors import SpaceError
from ablate.spec.base import refusal

if TYPE_CHECKING:
    from ablate.stats import Verdict

CostName = Literal["parameters", "flops"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One removal that was tried.

    Attributes:
        point: The variant without the component.
        parent: Name of the variant that it was removed from.
        switch: The switch that was turned.
        verdict: On the variant, against the baseline.
        value: Mean objective over the seeds that finished; None if none did.
        cost: What the variant costs.
    """

    point: Point
    parent: str
    switch: str
    verdict: Verdict
    value: float | None
    cost: PointCost

    @property
    def acceptable(self) -> bool:
        """Whether the component can go."""
        return self.verdict.word == "not needed"


@dataclass(frozen=True, slots=True)
class Round:
    """One round: every removal that was tried, and the names of those kept, the cheapest first; none in the last."""

    candidates: tuple[Candidate, ...]
    kept: tuple[str, ...]

    @property
    def best(self) -> Candidate:
        """The cheapest that was kept; only of a round that kept any."""
        return next(one for one in self.candidates if one.point.name == self.kept[0])


class SimplifyDesign(Design):
    """Proposes round after round; a round begins when all results of the one before are told.

    Args:
        context: What is known of the space.
        removals: Switch to its removing settings.
        seeds: How many.
        beam: Variants kept from a round to the next.
        cost: What is to be small.
    """

    def __init__(
        self, context: DesignContext, removals: Mapping[str, tuple[str, ...]], seeds: int, beam: int, cost: CostName
    ) -> None:
        self._context = context
        self._removals = removals
        self._seeds = range(seeds)
        self._width = beam
        self._cost = cost
        self._baseline = Point(BASELINE, context.baseline)
        self._beam = [self._baseline]
        self._results: dict[str, dict[int, float | None]] = {}
        self._rounds: list[Round] = []
        self._trying = self._removals_from(self._beam)
        self._done = False
        self._unasked = [self._baseline, *(point for point, _, _ in self._trying)]

    @property
    def rounds(self) -> tuple[Round, ...]:
        """What was tried and kept so far."""
        return tuple(self._rounds)

    @property
    def path(self) -> tuple[Candidate, ...]:
        """The removals, in order, that lead to the cheapest variant that was kept; of equal ones, to the plainest."""
        # The cheapest of each round that kept any; the later of two equal ones has more removed.
        ends = [(self._rank(tried.best)[0], -number) for number, tried in enumerate(self._rounds) if tried.kept]
        if not ends:
            return ()
        last = -min(ends)[1]
        steps = [self._rounds[last].best]
        for tried in reversed(self._rounds[:last]):
            steps.append(next(one for one in tried.candidates if one.point.name == steps[-1].parent))
        return tuple(reversed(steps))

    def points(self) -> list[Point]:
        """See `Design.points`: the baseline and the first round, those that make no model among them."""
        return [self._baseline, *(point for point, _, _ in self._turned([self._baseline]))]

    def further(self) -> str:
        """See `Design.further`."""
        return "and those of later rounds"

    def ask(self) -> list[Proposal]:
        """See `Design.ask`: all of a round at once."""
        while not self._done and not self._unasked and self._complete():
            self._close_round()
        unasked, self._unasked = self._unasked, []
        return [Proposal(point, seed) for seed in self._seeds for point in unasked]

    def tell(self, point: Point, seed: int, value: float | None) -> None:
        """See `Design.tell`."""
        self._results.setdefault(point.name, {})[seed] = value

    def _complete(self) -> bool:
        names = [BASELINE, *(point.name for point, _, _ in self._trying)]
        return all(len(self._results.get(name, {})) == len(self._seeds) for name in names)

    def _close_round(self) -> None:
        if not self._trying:
            self._done = True
            return
        candidates = [self._judge(point, parent, switch) for point, parent, switch in self._trying]
        acceptable = sorted((one for one in candidates if one.acceptable), key=self._rank)
        kept = acceptable[: self._width]
        self._rounds.append(Round(tuple(candidates), tuple(one.point.name for one in kept)))
        self._beam = [one.point for one in kept]
        self._trying = self._removals_from(self._beam)
        self._unasked = [point for point, _, _ in self._trying]

    def _rank(self, candidate: Candidate) -> tuple[float, float]:
        assert candidate.value is not None
        worse = candidate.value if self._context.direction == "minimize" else -candidate.value
        return getattr(candidate.cost, self._cost), worse

    def _judge(self, point: Point, parent: str, switch: str) -> Candidate:
        from ablate.stats import judge  # brings scipy, which takes long to import

        finished = _finished(self._results[point.name])
        verdict = judge(
            finished,
            _finished(self._results[BASELINE]),
            margin=self._context.margin,
            direction=self._context.direction,
            diverged={seed: None for seed in self._results[point.name] if seed not in finished},
        )
        value = statistics.fmean(finished.values()) if finished else None
        return Candidate(point, parent, switch, verdict, value, self._context.cost(point))

    def _turned(self, beam: list[Point]) -> list[tuple[Point, str, str]]:
        """Every (point, name of its parent, switch) one removal away from the beam, each point once."""
        turned: dict[str, tuple[Point, str, str]] = {}
        for parent in beam:
            for switch, settings in self._removals.items():
                if parent.settings[switch] == self._baseline.settings[switch]:
                    for setting in settings:
                        without = {**parent.settings, switch: setting}
                        name = setting_name(without, self._baseline.settings)
                        turned.setdefault(name, (Point(name, without), parent.name, switch))
        return list(turned.values())

    def _removals_from(self, beam: list[Point]) -> list[tuple[Point, str, str]]:
        return [one for one in self._turned(beam) if self._context.refusal(one[0]) is None]


class SimplifySpec(DesignSpec):
    """Take away one component after another for as long as the objective is surely not worse by the margin."""

    kind: Literal["simplify"] = "simplify"
    beam: int = Field(default=1, ge=1, le=100)
    """Variants kept from each round to the next; 1 is greedy."""
    cost: CostName = "parameters"
    """What is to be small: `parameters` or `flops`."""
    confirm: ConfirmField = 5
    """Fresh seeds with which the steps of the path are trained again at the end; 0: none. The path holds up to the
    first step that they do not confirm."""
    removals: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Switch to the settings that remove its component, where not all but the first do; none keeps it."""

    @model_validator(mode="after")
    def _can_decide(self) -> Self:
        if self.fixed_seeds() < 2:
            rule = "what is surely not worse is seen from the spread between seeds, so two are needed"
            raise refusal(("seeds",), self.seeds, rule, "Set `seeds: 3` or more.")
        return self

    def build(self, context: DesignContext) -> Design:
        """See `DesignSpec.build`.

        Raises:
            SpaceError: `removals` names what is not in the space, or nothing can be removed.
        """
        removing = self.removing(context)
        if not self.confirm:
            return removing
        return ConfirmingDesign(
            removing, removing.points()[0], self.confirm, lambda: [step.point for step in removing.path]
        )

    def removing(self, context: DesignContext) -> SimplifyDesign:
        """The design without its confirmation.

        Raises:
            SpaceError: `removals` names what is not in the space, or nothing can be removed.
        """
        for switch, settings in self.removals.items():
            known = context.switches.get(switch, ())[1:]
            for setting in settings if known else (switch,):
                if setting not in known:
                    raise SpaceError(
                        f"`{setting}` removes nothing" if known else "there is no such switch",
                        where=context.where("removals", switch),
                        expected=f"one of {', '.join(known or context.switches)}",
                        remedy="Name settings other than the first." if known else "Name a switch of the space.",
                    )
        removals = {
            switch: self.removals.get(switch, tuple(settings[1:])) for switch, settings in context.switches.items()
        }
        if not any(removals.values()):
            raise SpaceError(
                "no switch has a removing setting left",
                where=context.where("removals"),
                remedy="Give at least one switch a setting that removes it.",
            )
        return SimplifyDesign(context, removals, self.fixed_seeds(), self.beam, self.cost)


def _finished(results: Mapping[int, float | None]) -> dict[int, float]:
    return {seed: value for seed, value in results.items() if value is not None}

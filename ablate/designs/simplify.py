"""Simplify: backward elimination with a beam, after the procedure of He and Hofmann (2023), section 4.

A component is a switch at its first setting. Removing it means changing the switch to one of its removing settings.
Each round trains every variant that removes one more component from a variant in the beam. Variants with the verdict
`not needed` (not worse than the baseline by the margin) or `better` are acceptable, and the cheapest acceptable ones
are the next beam. The design ends when no removal is acceptable. A beam of 1 is a greedy search; a wider one can find
combinations that the cheapest first removal excludes.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

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
from ablate.designs.wrappers import ConfirmField, ConfirmingDesign
from ablate.errors import SpaceError
from ablate.spec.base import refusal
from ablate.stats import Verdict, judge

CostName = Literal["parameters", "flops"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A removal that was tried.

    Attributes:
        point: The variant without the component.
        parent: Name of the variant from which it was removed.
        verdict: Verdict on the comparison of the variant with the baseline.
        value: Mean objective over the seeds that finished; None if none did.
    """

    point: Point
    parent: str
    switch: str
    verdict: Verdict
    value: float | None
    cost: PointCost

    @property
    def acceptable(self) -> bool:
        """Whether the component can be removed."""
        return self.verdict.is_acceptable


@dataclass(frozen=True, slots=True)
class Round:
    """A round: all removals that were tried, and the names of those kept, cheapest first; none in the last round."""

    candidates: tuple[Candidate, ...]
    kept: tuple[str, ...]

    @property
    def best(self) -> Candidate:
        """The cheapest candidate that was kept. The round must have kept one."""
        return next(candidate for candidate in self.candidates if candidate.point.name == self.kept[0])


class SimplifyDesign(Design):
    """Proposes rounds; a round starts when all results of the previous one are known.

    Args:
        removals: Removing settings of each switch.
        seeds: Number of seeds.
        beam: Number of variants kept after each round.
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
        """The completed rounds."""
        return tuple(self._rounds)

    @property
    def path(self) -> tuple[Candidate, ...]:
        """The removals, in order, that lead to the cheapest kept variant; of equally cheap ones, to the last."""
        # The cheapest of each round that kept any. Of two equal ones, the later has more components removed.
        ends = [(self._rank(tried.best)[0], -number) for number, tried in enumerate(self._rounds) if tried.kept]
        if not ends:
            return ()
        last = -min(ends)[1]
        steps = [self._rounds[last].best]
        for tried in reversed(self._rounds[:last]):
            steps.append(next(candidate for candidate in tried.candidates if candidate.point.name == steps[-1].parent))
        return tuple(reversed(steps))

    def points(self) -> list[Point]:
        """The baseline and the first round, including invalid points."""
        return [self._baseline, *(point for point, _, _ in self._neighbours([self._baseline]))]

    def further(self) -> str:
        return "and those of later rounds"

    def further_trials(self) -> int | None:
        """In each further round one for each setting of the components that are left, of each kept variant and seed."""
        settings = sorted((len(removing) for removing in self._removals.values() if removing), reverse=True)
        left = range(1, len(settings) - len(self._rounds))
        return sum(self._width * sum(settings[:components]) for components in left) * len(self._seeds)

    @property
    def most_removed(self) -> int:
        """The most removals that a path has."""
        return sum(bool(removing) for removing in self._removals.values())

    def ask(self) -> list[Proposal]:
        """Propose all trials of a round at once."""
        while not self._done and not self._unasked and self._complete():
            self._close_round()
        unasked, self._unasked = self._unasked, []
        return [Proposal(point, seed) for seed in self._seeds for point in unasked]

    def tell(self, point: Point, seed: int, value: float | None) -> None:
        self._results.setdefault(point.name, {})[seed] = value

    def _complete(self) -> bool:
        names = [BASELINE, *(point.name for point, _, _ in self._trying)]
        return all(len(self._results.get(name, {})) == len(self._seeds) for name in names)

    def _close_round(self) -> None:
        if not self._trying:
            self._done = True
            return
        candidates = [self._judge(point, parent, switch) for point, parent, switch in self._trying]
        acceptable = sorted((candidate for candidate in candidates if candidate.acceptable), key=self._rank)
        kept = acceptable[: self._width]
        self._rounds.append(Round(tuple(candidates), tuple(candidate.point.name for candidate in kept)))
        self._beam = [candidate.point for candidate in kept]
        self._trying = self._removals_from(self._beam)
        self._unasked = [point for point, _, _ in self._trying]

    def _rank(self, candidate: Candidate) -> tuple[float, float]:
        assert candidate.value is not None
        worse = candidate.value if self._context.direction == "minimize" else -candidate.value
        return getattr(candidate.cost, self._cost), worse

    def _judge(self, point: Point, parent: str, switch: str) -> Candidate:
        finished, baseline = _finished_values(self._results[point.name]), _finished_values(self._results[BASELINE])
        verdict = judge(
            finished,
            baseline,
            margin=self._context.margin,
            direction=self._context.direction,
            diverged={seed: None for seed in self._results[point.name] if seed not in finished},
            baseline_diverged={seed: None for seed in self._results[BASELINE] if seed not in baseline},
        )
        value = statistics.fmean(finished.values()) if finished else None
        return Candidate(point, parent, switch, verdict, value, self._context.cost(point))

    def _neighbours(self, beam: list[Point]) -> list[tuple[Point, str, str]]:
        """All (point, name of its parent, switch) that are one removal away from the beam, without duplicates."""
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
        return [removal for removal in self._neighbours(beam) if self._context.refusal(removal[0]) is None]


class SimplifySpec(DesignSpec):
    """Remove one component after another while the objective is demonstrably not worse than the margin allows."""

    kind: Literal["simplify"] = "simplify"
    plans_points = False
    chooses = True
    beam: int = Field(default=1, ge=1, le=100)
    """Number of variants kept after each round; 1: greedy."""
    cost: CostName = "parameters"
    """The cost to minimise: `parameters` or `flops`."""
    confirm: ConfirmField = 5
    """Fresh seeds with which the steps of the path are trained again at the end; 0: none. The path holds up to the
    first step that they do not confirm."""
    removals: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Settings of a switch that remove its component; default: all but the first. An empty list keeps the component."""

    @model_validator(mode="after")
    def _can_decide(self) -> Self:
        if self.fixed_seeds() < 2:
            rule = "equivalence is tested by the variance between seeds, which needs at least two"
            raise refusal(("seeds",), self.seeds, rule, "Set `seeds: 3` or more.")
        return self

    def build(self, context: DesignContext) -> Design:
        """As `DesignSpec.build`.

        Raises:
            SpaceError: `removals` names a switch or setting that is not in the space, or nothing can be removed.
        """
        removing = self.removing(context)
        if not self.confirm:
            return removing
        return ConfirmingDesign(
            removing,
            removing.points()[0],
            self.confirm,
            lambda: [step.point for step in removing.path],
            removing.most_removed,
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
                        f"`{setting}` is not a removing setting" if known else "there is no such switch",
                        where=context.where("removals", switch),
                        expected=f"one of {', '.join(known or context.switches)}",
                        remedy="Name settings other than the first." if known else "Name a switch of the space.",
                    )
        removals = {
            switch: self.removals.get(switch, tuple(settings[1:])) for switch, settings in context.switches.items()
        }
        if not any(removals.values()):
            raise SpaceError(
                "no switch has a removing setting",
                where=context.where("removals"),
                remedy="Give at least one switch a setting that removes it.",
            )
        return SimplifyDesign(context, removals, self.fixed_seeds(), self.beam, self.cost)


def _finished_values(results: Mapping[int, float | None]) -> dict[int, float]:
    return {seed: value for seed, value in results.items() if value is not None}

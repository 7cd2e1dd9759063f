"""Designs that wrap another one: it is asked for trials, and the wrapper adds, holds back or informs them.

`ConfirmingDesign` trains what results chose again with fresh seeds: the best of many looks better than it is, on the
seeds that made it the best. Fresh seeds know nothing of the choice, so their verdicts are those of comparisons that
were declared beforehand. `BudgetedDesign` trains each point at other lengths too. `TunedDesign` and `TimedDesign` first
train auxiliary trials ("scouts") that determine how a point is trained; these have separate seeds, so that trials that
are compared have not been used for tuning.
"""

from __future__ import annotations

import functools
import statistics
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from ablate.designs.base import Design, Point, Proposal
from ablate.roles import CONFIRMATION_SEEDS, TIMING_SEEDS, TUNING_SEEDS, TrialRole
from ablate.spec.base import refusal
from ablate.spec.fairness import STEPS, TunedValues, TuneSpec, at_budget
from ablate.spec.suite import at_task, points_on_tasks


class WrappingDesign(Design):
    """Passes on to another design what concerns its points."""

    def __init__(self, inner: Design) -> None:
        self._inner = inner

    @abstractmethod
    def _of_inner(self, point: Point) -> Point | None:
        """The point as the inner design knows it; None for the wrapper's own."""

    def points(self) -> list[Point]:
        return self._inner.points()

    def further(self) -> str:
        return self._inner.further()

    def warnings(self) -> Sequence[str]:
        return self._inner.warnings()

    def waiting(self) -> list[Proposal]:
        return self._inner.waiting()

    def further_trials(self) -> int | None:
        return self._inner.further_trials()

    def tell(self, point: Point, seed: int, value: float | None) -> None:
        if (known := self._of_inner(point)) is not None:
            self._inner.tell(known, seed, value)

    @property
    def prunes(self) -> bool:
        """Whether the inner design prunes; the wrapper's own trials are never pruned."""
        return self._inner.prunes

    def watch(self, point: Point, seed: int, reached: float, loss: float) -> bool:
        known = self._of_inner(point)
        return known is not None and self._inner.watch(known, seed, reached, loss)

    def timed(self, point: Point, seed: int, tokens_per_second: float) -> None:
        if (known := self._of_inner(point)) is not None:
            self._inner.timed(known, seed, tokens_per_second)


def _no_single_seed(seeds: int) -> int:
    if seeds == 1:
        rule = "one seed shows no spread, and confirms nothing"
        raise refusal((), seeds, rule, "Set `confirm: 5`, or `confirm: 0` to go without.")
    return seeds


ConfirmField = Annotated[int, Field(ge=0, le=100), AfterValidator(_no_single_seed)]
"""How many fresh seeds confirm what a design has chosen; 0: none, and what was chosen has no verdict."""


class ConfirmingDesign(WrappingDesign):
    """Trains what another design chose, and the baseline, with seeds that took no part in the choice.

    Args:
        seeds: How many confirm.
        chosen: Returns the points to confirm, once the inner design has no further proposals.
        most: The most points that it returns, if that is known.
    """

    def __init__(
        self,
        inner: Design,
        baseline: Point,
        seeds: int,
        chosen: Callable[[], Sequence[Point]],
        most: int | None = None,
    ) -> None:
        super().__init__(inner)
        self._most = most
        self._baseline = baseline
        self._seeds = range(CONFIRMATION_SEEDS, CONFIRMATION_SEEDS + seeds)
        self._chosen = chosen
        self._open: set[tuple[str, int]] = set()
        self._asked = False

    def warnings(self) -> Sequence[str]:
        said = f"what is chosen is then trained with {len(self._seeds)} fresh seeds; only these carry its verdict"
        return (*self._inner.warnings(), said)

    def further_trials(self) -> int | None:
        """Those of the inner design, and those that confirm."""
        if self._asked:
            return 0
        inner = super().further_trials()
        return None if inner is None or self._most is None else inner + len(self._seeds) * (1 + self._most)

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
        self._open.discard((point.name, seed))
        super().tell(point, seed, value)

    def _of_inner(self, point: Point) -> Point | None:
        return None if point.role is TrialRole.CONFIRMATION else point


class BudgetedDesign(WrappingDesign):
    """The proposals of another design, and those of the same points and seeds at other lengths.

    An early point of a long training run does not stand for a short one: its learning rate had not decayed yet. So
    every length is a training run of its own, with the same seeds, and the baseline of that length to compare with.
    Results at other lengths do not affect the proposals of the inner design.

    Args:
        inner: The design whose points are compared at each length.
        budgets: Lengths as multiples of the space's; 1 is that of the inner design.
    """

    def __init__(self, inner: Design, budgets: Sequence[float], steps: int) -> None:
        super().__init__(inner)
        self._others = [budget for budget in budgets if budget != 1]
        self._steps = steps
        self._lengths: set[str] = set()

    def points(self) -> list[Point]:
        """The points of the inner design, then those at other lengths."""
        inner = self._inner.points()
        return [*inner, *(other for point in inner for other in self._at_others(point))]

    def warnings(self) -> Sequence[str]:
        """The warnings of the inner design, and one on the lengths."""
        lengths = ", ".join(f"{round(budget * self._steps):,}" for budget in self._others)
        said = f"every variant is also trained for {lengths} steps, each with its whole schedule"
        return (*self._inner.warnings(), said)

    def waiting(self) -> list[Proposal]:
        return self._with_others(self._inner.waiting())

    def further_trials(self) -> int | None:
        inner = super().further_trials()
        return None if inner is None else inner * (1 + len(self._others))

    def ask(self) -> list[Proposal]:
        """The proposals of the inner design, each followed by the same at other lengths."""
        return self._with_others(self._inner.ask())

    def _of_inner(self, point: Point) -> Point | None:
        return None if point.name in self._lengths else point

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
        self._lengths |= {point.name for point in made}
        return made


class SuiteDesign(WrappingDesign):
    """The points and proposals of another design, each on every task of a suite.

    The other design names its points before results, and learns none.

    Args:
        inner: The design whose points are trained.
        tuned: Values that were tuned before the study, by path and variant, or variant on a task.
    """

    def __init__(self, inner: Design, tasks: Sequence[str], tuned: TunedValues) -> None:
        super().__init__(inner)
        self._tasks = tasks
        self._on_tasks = points_on_tasks(inner.points(), tasks, tuned)

    def points(self) -> list[Point]:
        return list(self._on_tasks.values())

    def warnings(self) -> Sequence[str]:
        """The warnings of the inner design, and one on the tasks."""
        return (*self._inner.warnings(), f"every variant is trained on {len(self._tasks)} tasks, each with its seeds")

    def ask(self) -> list[Proposal]:
        """The proposals of the inner design on each task, seed by seed, so that all tasks advance together."""
        return [
            Proposal(self._on_tasks[at_task(proposal.point.name, task)], proposal.seed)
            for proposal in self._inner.ask()
            for task in self._tasks
        ]

    def _of_inner(self, point: Point) -> Point | None:
        return None


class ScoutingDesign(WrappingDesign):
    """Holds back the proposals of another design until the scouts of their points have ended.

    Each round first proposes all scouts, then the held proposals in the order of the inner design. So the order in
    which trials end has no effect.

    Args:
        inner: The design whose points need scouts.
    """

    def __init__(self, inner: Design) -> None:
        super().__init__(inner)
        self._held: list[Proposal] = []
        self._asked: set[str] = set()
        self._open: set[tuple[str, int]] = set()
        self._results: dict[str, dict[int, float | None]] = {}

    @abstractmethod
    def _scouts(self, points: Iterable[Point]) -> Sequence[Proposal]:
        """The scouts that these points need, including those already proposed."""

    def _apply_scouts(self, point: Point) -> Point:
        """The point as it is trained, given the results of its scouts."""
        return point

    def waiting(self) -> list[Proposal]:
        return [*self._held, *self._inner.waiting()]

    def further_trials(self) -> int | None:
        """Those of the inner design and the scouts of what waits; None if some of its points are not yet known."""
        inner = super().further_trials()
        if inner is None or self.further():
            return None
        waiting = {proposal.point.name: proposal.point for proposal in self._inner.waiting()}
        return inner + sum(scout.point.name not in self._asked for scout in self._scouts(waiting.values()))

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
        return [Proposal(self._apply_scouts(proposal.point), proposal.seed) for proposal in held]

    def tell(self, point: Point, seed: int, value: float | None) -> None:
        if point.name in self._asked:
            self._open.discard((point.name, seed))
            self._results.setdefault(point.name, {})[seed] = value
        super().tell(point, seed, value)

    def _of_inner(self, point: Point) -> Point | None:
        return None if point.name in self._asked else self._undo_scouts(point)

    def _undo_scouts(self, point: Point) -> Point:
        """The point as it was before its scouts."""
        return point if point.role.scouts else replace(point, tuned={})


_ONE_SEED = ("One tuning seed does not show its noise: no bound holds, and every comparison stays undecided. Use two.",)


def tuning_rank(results: Iterable[float | None], direction: Literal["minimize", "maximize"]) -> tuple[int, float]:
    """Rank of a combination of values by the results of its trials (None: diverged or failed); lower is better.

    Fewer lost seeds come before a better mean, because the mean over the remaining seeds would be biased.
    """
    values = list(results)
    finished = [value for value in values if value is not None]
    mean = statistics.fmean(finished) if finished else 0.0
    return len(values) - len(finished), mean if direction == "minimize" else -mean


class TunedDesign(ScoutingDesign):
    """Trains every point of another design with each combination of a grid, and proposes it with the best one.

    Every point gets the same trials: all combinations with the same seeds.

    Args:
        inner: The design whose points are tuned.
        tune: The grid and the number of seeds.
        direction: Whether a smaller or a larger objective is better.
    """

    def __init__(self, inner: Design, tune: TuneSpec, direction: Literal["minimize", "maximize"]) -> None:
        super().__init__(inner)
        self._grid = list(tune.combinations())
        self._seeds = range(TUNING_SEEDS, TUNING_SEEDS + tune.seeds)
        self._tune = tune
        self._direction = direction

    def warnings(self) -> Sequence[str]:
        paths = " and ".join(f"{path} ({', '.join(map(str, values))})" for path, values in self._tune.grid.items())
        trials = len(self._grid) * len(self._seeds)
        return (
            *self._inner.warnings(),
            f"Tunes {paths}: {trials} trials for each variant, with seeds from {TUNING_SEEDS} on, not compared.",
            *(_ONE_SEED if len(self._seeds) == 1 else ()),
        )

    def _scouts(self, points: Iterable[Point]) -> list[Proposal]:
        tried = [self._scout_with(point, values) for point in points for values in self._grid]
        return [Proposal(point, seed) for seed in self._seeds for point in tried]

    def _apply_scouts(self, point: Point) -> Point:
        # `min` returns the first of equal combinations.
        best = min(self._grid, key=functools.partial(self._rank, point))
        return replace(point, tuned={**point.tuned, **best})

    def _rank(self, point: Point, values: Mapping[str, JsonValue]) -> tuple[int, float]:
        return tuning_rank(self._results[self._scout_with(point, values).name].values(), self._direction)

    @staticmethod
    def _scout_with(point: Point, values: Mapping[str, JsonValue]) -> Point:
        written = ", ".join(f"{path}={value}" for path, value in values.items())
        return replace(point, name=f"{point.name} ({written})", tuned={**point.tuned, **values}, role=TrialRole.TUNING)


TIMING_STEPS = 40
"""Number of steps of a timing trial; the first half is a warm-up and is not measured."""

_SCHEDULE = "training.schedule"
_TRAINED: dict[str, JsonValue] = {
    "training.steps": TIMING_STEPS,
    "training.evaluations": 2,
    _SCHEDULE: {"kind": "constant"},  # others may need more steps
}
_IRRELEVANT_PATHS = ("training.optimizer.lr", "training.optimizer.weight_decay", _SCHEDULE)
"""Paths that do not affect the duration of a step."""


def timing_point(point: Point, written: Mapping[str, JsonValue]) -> Point:
    """The point of the trial that times the steps of another point.

    Args:
        written: Values in the space of tuned paths that do not affect the duration, so that one timing serves all
            values.
    """
    tuned = {path: written.get(path, value) for path, value in point.tuned.items()}
    name = point.name.partition(" (")[0]
    kept = ", ".join(f"{path}={value}" for path, value in tuned.items() if path not in written)
    name = f"{name} ({f'{kept}, ' if kept else ''}timing)"
    kept_paths = {path: value for path, value in tuned.items() if not f"{path}.".startswith(f"{_SCHEDULE}.")}
    return replace(point, name=name, tuned=kept_paths | _TRAINED, role=TrialRole.TIMING)


def keeps_step_time(path: str) -> bool:
    """Whether a full path does not affect the duration of a step."""
    return any(f"{path}.".startswith(f"{other}.") for other in _IRRELEVANT_PATHS)


class TimedDesign(ScoutingDesign):
    """Times every point of another design and the baseline with which they are matched, before it is proposed.

    Args:
        inner: The design whose points are timed.
        baseline: The baseline as in the space file.
        written: See `timing_point`.
    """

    def __init__(self, inner: Design, baseline: Point, written: Mapping[str, JsonValue]) -> None:
        super().__init__(inner)
        self._baseline = baseline
        self._written = written

    def _scouts(self, points: Iterable[Point]) -> list[Proposal]:
        timing = [timing_point(point, self._written) for point in (self._baseline, *points)]
        distinct = {point.name: point for point in timing}
        return [Proposal(point, seed) for seed in TIMING_SEEDS for point in distinct.values()]

    def _undo_scouts(self, point: Point) -> Point:
        return point

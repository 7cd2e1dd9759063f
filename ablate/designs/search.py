"""Search: Optuna's samplers over switches and numeric ranges, for one objective or several.

The Optuna study lives in memory and is rebuilt by telling results again. Points are drawn in batches, and a batch is
told to Optuna in the order in which it was drawn, once all its results are there: so the order in which trials end
changes nothing. A point of which a seed diverged counts as badly as the worst point that finished; so does one of which
a seed was pruned. What is pruned depends on which trials were further on at the time, and so on the machine.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, JsonValue, model_validator

from ablate.designs.base import (
    Design,
    DesignContext,
    DesignSpec,
    Point,
    Proposal,
    named_points,
    setting_name,
    settings_key,
)
from ablate.designs.confirming import ConfirmField, ConfirmingDesign
from ablate.designs.pruners import Pruner
from ablate.errors import SpaceError
from ablate.extras import require
from ablate.spec.annotations import Number
from ablate.spec.base import Spec, refusal

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

    from ablate.designs.bridges.optuna_pruning import Pruning

SamplerName = Literal["tpe", "gp", "nsga2", "nsga3", "cmaes", "random"]
Aim = Literal["objective", "parameters", "flops", "tokens_per_second"]

_DIRECTIONS: dict[Aim, Literal["minimize", "maximize"]] = {
    "parameters": "minimize",
    "flops": "minimize",
    "tokens_per_second": "maximize",
}
_TRIES = 10
"""Draws of the sampler for one point that is new and makes a model; then chance draws."""
_CHANCES = 1000
_MOST_CONFIRMED = 5
"""Points of a front that are confirmed."""


class RangeSpec(Spec):
    """The values that a spec path may take: whole numbers if both bounds are written as whole numbers."""

    low: Number
    """Least value."""
    high: Number
    """Greatest value."""
    log: bool = False
    """Whether values are drawn evenly on a logarithmic scale."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if not self.low < self.high:
            raise refusal(("high",), self.high, f"a range ends above its start, {self.low}", "Raise `high`.")
        if self.log and self.low <= 0:
            raise refusal(("low",), self.low, "a logarithmic range starts above 0", "Raise `low`.")
        return self

    def distribution(self) -> BaseDistribution:
        """The range as Optuna's."""
        from optuna.distributions import FloatDistribution, IntDistribution

        if isinstance(self.low, int) and isinstance(self.high, int):
            return IntDistribution(self.low, self.high, log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)


@dataclass(slots=True)
class _Drawn:
    """A point of the current batch; `trial` is None if Optuna does not know of it."""

    point: Point
    trial: optuna.Trial | None


class SearchDesign(Design):
    """Proposes a batch after the other.

    Attributes:
        study: Optuna's study, for its plots and importances; the settings and values of points are its parameters.
    """

    def __init__(self, spec: SearchSpec, context: DesignContext, sampler: BaseSampler, chance: BaseSampler) -> None:
        import optuna

        self._spec = spec
        self._seeds = spec.fixed_seeds()
        self._context = context
        self._sampler = sampler
        self._chance = chance
        directions = [context.direction if aim == "objective" else _DIRECTIONS[aim] for aim in spec.objectives]
        self._worse = [max if direction == "minimize" else min for direction in directions]
        self.study = optuna.create_study(directions=directions, sampler=sampler)
        self._switches = {} if spec.sampler == "cmaes" else context.switches
        self._distributions: dict[str, BaseDistribution] = {
            switch: optuna.distributions.CategoricalDistribution(list(settings))
            for switch, settings in self._switches.items()
        }
        self._distributions |= {path: values.distribution() for path, values in spec.ranges.items()}
        self._named_points = {point.name for point in self.points()}
        self._seen: set[object] = set()
        self._proposed: dict[str, Point] = {}
        self._batch: list[_Drawn] = []
        self._results: dict[str, dict[int, float | None]] = {}
        self._speeds: dict[str, dict[int, float]] = {}
        self._pruning: Pruning | None = None
        if spec.pruning is not None:
            from ablate.designs.bridges.optuna_pruning import Pruning

            self._pruning = Pruning(spec.pruning)
        self._worst: list[float] | None = None
        self._begun = False

    def points(self) -> list[Point]:
        """See `Design.points`: the baseline and the named variants."""
        return named_points(self._context)

    def further(self) -> str:
        """See `Design.further`: what the sampler draws."""
        drawn = self._spec.points - len(self.points())
        return f"and up to {drawn} more that the search draws" if drawn > 0 else ""

    def ask(self) -> list[Proposal]:
        """See `Design.ask`: a batch at once, the first with the baseline and the named variants."""
        if any(len(self._results.get(drawn.point.name, {})) < self._seeds for drawn in self._batch):
            return []
        self._close_batch()
        if not self._begun:
            self._begun = True
            self._batch = [self._named(point) for point in self.points() if self._is_new(point)]
        while len(self._batch) < self._spec.batch and len(self._seen) < self._spec.points:
            drawn = self._draw()
            if drawn is None:
                break
            self._batch.append(drawn)
        proposals = [Proposal(drawn.point, seed) for seed in range(self._seeds) for drawn in self._batch]
        self._proposed |= {drawn.point.name: drawn.point for drawn in self._batch}
        if self._pruning is not None:
            for proposal in proposals:
                self._pruning.expect(proposal)
        return proposals

    def chosen(self) -> list[Point]:
        """The best point but the baseline, of those that finished at all seeds; of several objectives, of the front."""
        from ablate.stats import dominators

        baseline = self.points()[0].name
        values = {
            name: found
            for name, point in self._proposed.items()
            if name != baseline and name in self._results and (found := self._values(point)) is not None
        }
        if not values:
            return []
        directions = [
            self._context.direction if aim == "objective" else _DIRECTIONS[aim] for aim in self._spec.objectives
        ]
        better = dominators(list(values.values()), directions)
        front = [name for name, above in zip(values, better, strict=True) if not above]
        sign = 1 if self._context.direction == "minimize" else -1
        first = self._spec.objectives.index("objective")
        front.sort(key=lambda name: sign * values[name][first])
        return [self._proposed[name] for name in front[: 1 if len(directions) == 1 else _MOST_CONFIRMED]]

    def remarks(self) -> Sequence[str]:
        """See `Design.remarks`."""
        said = []
        if self._pruning is not None:
            said.append("pruned trials are no results: the table compares only variants that were trained to the end")
        if "tokens_per_second" in self._spec.objectives:
            said.append(
                "tokens_per_second is noisy, and differs with the machine, what else runs on it, and the size of packs"
            )
        return said

    @property
    def prunes(self) -> bool:
        """See `Design.prunes`."""
        return self._pruning is not None

    def watch(self, point: Point, seed: int, reached: float, loss: float) -> bool:
        """See `Design.watch`."""
        ends = self._pruning is not None and self._pruning.watch(point.name, seed, reached, loss)
        return ends and point.name not in self._named_points  # others are compared with these

    def timed(self, point: Point, seed: int, tokens_per_second: float) -> None:
        """See `Design.timed`."""
        self._speeds.setdefault(point.name, {})[seed] = tokens_per_second

    def tell(self, point: Point, seed: int, value: float | None) -> None:
        """See `Design.tell`."""
        if self._pruning is not None:
            self._pruning.end(point.name, seed, finished=value is not None)
        self._results.setdefault(point.name, {})[seed] = value

    def _named(self, point: Point) -> _Drawn:
        self._seen.add(settings_key(point))
        if self._spec.ranges:
            return _Drawn(point, None)  # where it stands in the ranges is not known here
        self.study.enqueue_trial(dict(point.settings))
        return _Drawn(point, self.study.ask(self._distributions))

    def _draw(self) -> _Drawn | None:
        """A new point that makes a model; None if a thousand draws found none."""
        from optuna.trial import TrialState

        for sampler, times in ((self._sampler, _TRIES), (self._chance, _CHANCES)):
            self.study.sampler = sampler
            for _ in range(times):
                trial = self.study.ask(self._distributions)
                point = self._point(trial.params)
                if self._is_new(point):
                    self._seen.add(settings_key(point))
                    self.study.sampler = self._sampler
                    return _Drawn(point, trial)
                self.study.tell(trial, state=TrialState.FAIL)
        return None

    def _point(self, parameters: Mapping[str, JsonValue]) -> Point:
        settings = {**self._context.baseline, **{switch: str(parameters[switch]) for switch in self._switches}}
        name, values = setting_name(settings, self._context.baseline), {}
        for path in self._spec.ranges:
            value = parameters[path]
            values[path] = float(f"{value:.6g}") if isinstance(value, float) else value
        place = ",".join(f"{path}={value}" for path, value in values.items())
        return Point(f"{name}@{place}" if place else name, settings, values)

    def _is_new(self, point: Point) -> bool:
        if settings_key(point) in self._seen or self._context.refusal(point) is not None:
            return False
        if not self._spec.at_most:
            return True
        cost = self._context.cost(point)
        return all(getattr(cost, name) <= most for name, most in self._spec.at_most.items())

    def _close_batch(self) -> None:
        from optuna.trial import TrialState

        told = [(drawn, self._values(drawn.point)) for drawn in self._batch if drawn.trial is not None]
        self._batch = []
        finished = [values for _, values in told if values is not None] + ([self._worst] if self._worst else [])
        if finished:
            self._worst = [
                worse(values) for worse, values in zip(self._worse, zip(*finished, strict=True), strict=True)
            ]
        for drawn, values in told:
            counted = values or self._worst
            assert drawn.trial is not None
            if counted is None:
                self.study.tell(drawn.trial, state=TrialState.FAIL)
            else:
                self.study.tell(drawn.trial, counted)

    def _values(self, point: Point) -> list[float] | None:
        """The objectives of a point; None if any seed diverged, failed or was pruned."""
        results = list(self._results[point.name].values())
        finished = [value for value in results if value is not None]
        if len(finished) < len(results):
            return None
        cost = self._context.cost(point)
        values = {"objective": statistics.fmean(finished), "parameters": cost.parameters, "flops": cost.flops}
        if speeds := self._speeds.get(point.name):
            values["tokens_per_second"] = statistics.fmean(speeds.values())
        return [values[aim] for aim in self._spec.objectives]


class SearchSpec(DesignSpec):
    """Look for good variants in a space that is too large for a grid."""

    kind: Literal["search"] = "search"
    sampler: SamplerName = "tpe"
    """`tpe` (tree-structured Parzen), `gp` (Gaussian process), `nsga2` and `nsga3` (evolution), `cmaes` (numeric
    ranges only; switches stay at the baseline's) or `random`."""
    points: int = Field(default=50, ge=1)
    """Variants to train, the baseline and the named variants among them."""
    batch: int = Field(default=4, ge=1, le=1000)
    """Variants drawn at a time; more train side by side, fewer learn faster."""
    ranges: dict[str, RangeSpec] = Field(default_factory=dict)
    """Numeric spec paths to search beside the switches."""
    objectives: tuple[Aim, ...] = ("objective",)
    """What is optimised: `objective` (the space's), `parameters` and `flops` (the fewer the better), and
    `tokens_per_second` of training (the more the better; noisy, and another on every machine)."""
    pruning: Pruner | None = None
    """By which rule trials are ended early; unless set, all are trained to the end, as the baseline and the named
    variants always are."""
    at_most: dict[Literal["parameters", "flops"], float] = Field(default_factory=dict)
    """Limits that a variant must keep; `flops` is the arithmetic of a whole trial."""
    confirm: ConfirmField = 5
    """Fresh seeds with which the best point is trained again at the end (of several objectives, up to five of the
    front); 0: none. Only these carry its verdict."""
    draws: int = Field(default=0, ge=0)
    """Seed of the sampler."""

    @model_validator(mode="after")
    def _is_a_search(self) -> Self:
        if "objective" not in self.objectives or len(set(self.objectives)) < len(self.objectives):
            rule = "the objectives are different ones and `objective` is among them"
            raise refusal(("objectives",), list(self.objectives), rule, "Set `objectives: [objective, parameters]`.")
        if self.sampler == "cmaes" and len(self.ranges) < 2:
            rule = "CMA-ES needs at least two numeric ranges"
            raise refusal(("sampler",), self.sampler, rule, "Add `ranges`, or choose `tpe`.")
        return self

    def paths(self) -> tuple[str, ...]:
        """See `DesignSpec.paths`."""
        return tuple(self.ranges)

    def build(self, context: DesignContext) -> Design:
        """See `DesignSpec.build`.

        Raises:
            SpaceError: A range's path makes no model at all.
            MissingPackageError: Optuna, or what its samplers need, is not installed.
        """
        search = self.searching(context)
        if not self.confirm:
            return search
        return ConfirmingDesign(search, search.points()[0], self.confirm, search.chosen)

    def searching(self, context: DesignContext) -> SearchDesign:
        """The design without its confirmation.

        Raises:
            SpaceError: A range's path makes no model at all.
            MissingPackageError: Optuna, or what its samplers need, is not installed.
        """
        require("search", "the design `search`", where=context.where("kind"))
        for path, values in self.ranges.items():
            ends = [Point(f"{path}={value}", context.baseline, {path: value}) for value in (values.low, values.high)]
            reasons = [context.refusal(point) for point in ends]
            if all(reason is not None for reason in reasons):
                raise SpaceError(
                    f"the baseline makes no model at either end of this range: {reasons[0]}",
                    where=context.where("ranges", path),
                    remedy="Give a path that exists and bounds that fit it.",
                )
        with _quiet():
            samplers = _samplers(self)
            return SearchDesign(self, context, samplers[self.sampler](), samplers["random"]())


def _samplers(spec: SearchSpec) -> Mapping[SamplerName, Callable[[], BaseSampler]]:
    from optuna import samplers

    # Populations of a fifth of the budget leave evolution at least five generations.
    population = max(4, min(50, spec.points // 5))
    return {
        "tpe": lambda: samplers.TPESampler(seed=spec.draws),
        "gp": lambda: samplers.GPSampler(seed=spec.draws),
        "nsga2": lambda: samplers.NSGAIISampler(seed=spec.draws, population_size=population),
        "nsga3": lambda: samplers.NSGAIIISampler(seed=spec.draws, population_size=population),
        "cmaes": lambda: samplers.CmaEsSampler(seed=spec.draws, warn_independent_sampling=False),
        "random": lambda: samplers.RandomSampler(seed=spec.draws),
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's lines about a new study and about NSGA-III being experimental."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)

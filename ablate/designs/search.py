"""Search: Optuna's samplers over switches and numeric ranges, with one or more objectives.

The Optuna study is kept in memory and rebuilt from the stored results. Points are sampled in batches. The results of a
batch are reported to Optuna in the order of sampling when all are known, so the order in which trials end has no
effect. A point with a diverged or pruned seed counts as the worst finished point. Which trials are pruned depends on
the progress of concurrent trials, and so on the machine.
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
from ablate.designs.pruners import Pruner, Pruning
from ablate.designs.wrappers import ConfirmField, ConfirmingDesign
from ablate.errors import SpaceError
from ablate.extras import require
from ablate.spec.annotations import Number
from ablate.spec.base import Spec, refusal
from ablate.stats import dominators

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

SamplerName = Literal["tpe", "gp", "nsga2", "nsga3", "cmaes", "random"]
Aim = Literal["objective", "parameters", "flops", "tokens_per_second"]

_DIRECTIONS: dict[Aim, Literal["minimize", "maximize"]] = {
    "parameters": "minimize",
    "flops": "minimize",
    "tokens_per_second": "maximize",
}
_SAMPLER_ATTEMPTS = 10
"""Attempts of the sampler to find a new valid point, before random sampling is used."""
_RANDOM_ATTEMPTS = 1000
_MOST_CONFIRMED = 5
"""Points of a front that are confirmed."""


class RangeSpec(Spec):
    """The range of values of a spec path; integers if both bounds are integers."""

    low: Number
    """Lower bound."""
    high: Number
    """Upper bound."""
    log: bool = False
    """Whether values are sampled uniformly on a logarithmic scale."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if not self.low < self.high:
            raise refusal(("high",), self.high, f"`high` must be above `low`, which is {self.low}", "Raise `high`.")
        if self.log and self.low <= 0:
            raise refusal(("low",), self.low, "a logarithmic range must start above 0", "Raise `low`.")
        return self

    def distribution(self) -> BaseDistribution:
        """The range as an Optuna distribution."""
        from optuna.distributions import FloatDistribution, IntDistribution

        if isinstance(self.low, int) and isinstance(self.high, int):
            return IntDistribution(self.low, self.high, log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)


@dataclass(slots=True)
class _Drawn:
    """A point of the current batch; `trial` is None if it is not in the Optuna study."""

    point: Point
    trial: optuna.Trial | None


class SearchDesign(Design):
    """Proposes batches of points.

    Attributes:
        study: The Optuna study, for plots and importances. Its parameters are the settings and values of points.
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
        self._pruning = Pruning(spec.pruning) if spec.pruning is not None else None
        self._worst: list[float] | None = None
        self._begun = False

    def points(self) -> list[Point]:
        """The baseline and the named variants."""
        return named_points(self._context)

    def further(self) -> str:
        """The number of points that the sampler adds."""
        drawn = self._spec.points - len(self.points())
        return f"and up to {drawn} more from the search" if drawn > 0 else ""

    def further_trials(self) -> int | None:
        return max(0, self._spec.points - len(self._seen)) * self._seeds

    @property
    def most_chosen(self) -> int:
        """The most points that `chosen` returns."""
        return 1 if len(self._spec.objectives) == 1 else _MOST_CONFIRMED

    def ask(self) -> list[Proposal]:
        """Propose a batch; the first batch includes the baseline and the named variants."""
        if any(len(self._results.get(drawn.point.name, {})) < self._seeds for drawn in self._batch):
            return []
        self._close_batch()
        if not self._begun:
            self._begun = True
            self._batch = [self._enqueue(point) for point in self.points() if self._is_new(point)]
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
        baseline = self.points()[0].name
        values = {
            name: objectives
            for name, point in self._proposed.items()
            if name != baseline and name in self._results and (objectives := self._values(point)) is not None
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
        return [self._proposed[name] for name in front[: self.most_chosen]]

    def warnings(self) -> Sequence[str]:
        found = []
        if self._pruning is not None:
            found.append("pruned trials have no result: the table compares only variants that were trained to the end")
        if "tokens_per_second" in self._spec.objectives:
            found.append(
                "tokens_per_second is noisy and depends on the machine, its load and the size of packs; reports "
                "show it only where variants are timed side by side, with `timing: true`"
            )
        return found

    @property
    def prunes(self) -> bool:
        return self._pruning is not None

    def watch(self, point: Point, seed: int, reached: float, loss: float) -> bool:
        ends = self._pruning is not None and self._pruning.watch(point.name, seed, reached, loss)
        return ends and point.name not in self._named_points  # these are references for the others

    def timed(self, point: Point, seed: int, tokens_per_second: float) -> None:
        self._speeds.setdefault(point.name, {})[seed] = tokens_per_second

    def tell(self, point: Point, seed: int, value: float | None) -> None:
        if self._pruning is not None:
            self._pruning.end(point.name, seed, finished=value is not None)
        self._results.setdefault(point.name, {})[seed] = value

    def _enqueue(self, point: Point) -> _Drawn:
        self._seen.add(settings_key(point))
        if self._spec.ranges:
            return _Drawn(point, None)  # its values within the ranges are unknown
        self.study.enqueue_trial(dict(point.settings))
        return _Drawn(point, self.study.ask(self._distributions))

    def _draw(self) -> _Drawn | None:
        """Sample a new valid point; None if a thousand random attempts found none."""
        from optuna.trial import TrialState

        for sampler, times in ((self._sampler, _SAMPLER_ATTEMPTS), (self._chance, _RANDOM_ATTEMPTS)):
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

        results = [(drawn, self._values(drawn.point)) for drawn in self._batch if drawn.trial is not None]
        self._batch = []
        finished = [values for _, values in results if values is not None] + ([self._worst] if self._worst else [])
        if finished:
            self._worst = [
                worse(values) for worse, values in zip(self._worse, zip(*finished, strict=True), strict=True)
            ]
        for drawn, values in results:
            reported = values or self._worst
            assert drawn.trial is not None
            if reported is None:
                self.study.tell(drawn.trial, state=TrialState.FAIL)
            else:
                self.study.tell(drawn.trial, reported)

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
    """Search for good variants in a space that is too large for a grid."""

    kind: Literal["search"] = "search"
    plans_points = False
    chooses = True
    sampler: SamplerName = "tpe"
    """`tpe` (tree-structured Parzen estimator), `gp` (Gaussian process), `nsga2` and `nsga3` (evolutionary), `cmaes`
    (numeric ranges only; switches keep the settings of the baseline) or `random`."""
    points: int = Field(default=50, ge=1)
    """Number of variants to train, including the baseline and the named variants."""
    batch: int = Field(default=4, ge=1, le=1000)
    """Number of variants sampled at a time. Large batches train more in parallel; small batches adapt faster."""
    ranges: dict[str, RangeSpec] = Field(default_factory=dict)
    """Numeric spec paths to search in addition to the switches."""
    objectives: tuple[Aim, ...] = ("objective",)
    """What is optimised: `objective` (that of the space), `parameters` and `flops` (minimised), and `tokens_per_second`
    of training (maximised; noisy and machine-dependent)."""
    pruning: Pruner | None = None
    """Rule by which trials are ended early; default: none. The baseline and the named variants are never pruned."""
    at_most: dict[Literal["parameters", "flops"], float] = Field(default_factory=dict)
    """Upper limits on the cost of a variant; `flops` is the arithmetic of a whole trial."""
    confirm: ConfirmField = 5
    """Fresh seeds with which the best point is trained again at the end (of several objectives, up to five of the
    front); 0: none. Only these carry its verdict."""
    draws: int = Field(default=0, ge=0)
    """Random seed of the sampler."""

    @model_validator(mode="after")
    def _is_a_search(self) -> Self:
        if "objective" not in self.objectives or len(set(self.objectives)) < len(self.objectives):
            rule = "the objectives must be distinct and include `objective`"
            raise refusal(("objectives",), list(self.objectives), rule, "Set `objectives: [objective, parameters]`.")
        if self.sampler == "cmaes" and len(self.ranges) < 2:
            rule = "CMA-ES needs at least two numeric ranges"
            raise refusal(("sampler",), self.sampler, rule, "Add `ranges`, or choose `tpe`.")
        return self

    @property
    def finds_best(self) -> bool:
        """Of several objectives there is a front instead."""
        return len(self.objectives) == 1

    def paths(self) -> tuple[str, ...]:
        return tuple(self.ranges)

    def build(self, context: DesignContext) -> Design:
        """As `DesignSpec.build`.

        Raises:
            SpaceError: Neither end of a range makes a model.
            MissingPackageError: Optuna, or a package that its samplers need, is not installed.
        """
        search = self.searching(context)
        if not self.confirm:
            return search
        return ConfirmingDesign(search, search.points()[0], self.confirm, search.chosen, search.most_chosen)

    def searching(self, context: DesignContext) -> SearchDesign:
        """The design without its confirmation.

        Raises:
            SpaceError: A range's path is invalid everywhere.
            MissingPackageError: Optuna, or what its samplers need, is not installed.
        """
        require("search", "the design `search`", where=context.where("kind"))
        for path, values in self.ranges.items():
            ends = [Point(f"{path}={value}", context.baseline, {path: value}) for value in (values.low, values.high)]
            reasons = [context.refusal(point) for point in ends]
            if all(reason is not None for reason in reasons):
                raise SpaceError(
                    f"the baseline is invalid at either end of this range: {reasons[0]}",
                    where=context.where("ranges", path),
                    remedy="Give an existing path and valid bounds.",
                )
        with _quiet():
            samplers = _samplers(self)
            return SearchDesign(self, context, samplers[self.sampler](), samplers["random"]())


def _samplers(spec: SearchSpec) -> Mapping[SamplerName, Callable[[], BaseSampler]]:
    from optuna import samplers

    # A population of a fifth of the budget allows at least five generations.
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
    """Suppress Optuna's messages about new studies and about NSGA-III being experimental."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)

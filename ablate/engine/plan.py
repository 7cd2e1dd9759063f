"""The plan of a study: every variant and trial that its design asks for, what they cost, and what cannot be."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from ablate.designs.base import BASELINE, Design, Point, PointCost, Proposal
from ablate.errors import PluginError, SpaceError
from ablate.model.build import mean_flops, model_cost
from ablate.spec.cost import Cost
from ablate.spec.resolver import Resolver
from ablate.spec.space import SpaceSpec
from ablate.spec.variant import VariantSpec, trial_key
from ablate.tasks.base import Task


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of the plan.

    Attributes:
        name: The name of the first point that gave it.
        settings: The settings of that point.
        spec: The full spec.
        hash: Its content hash.
        cost: Forward pass over one sequence of the longest.
        flops: Arithmetic of one whole trial.
        fingerprint: Content hash of its prepared data.
    """

    name: str
    settings: Mapping[str, str]
    spec: VariantSpec
    hash: str
    cost: Cost
    flops: float
    fingerprint: str


@dataclass(frozen=True, slots=True)
class InvalidPoint:
    """A point that makes no model, and why."""

    point: Point
    reason: str


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial of the plan: a variant and a seed."""

    key: str
    variant: Variant
    seed: int


@dataclass(slots=True)
class Planner:
    """Turns the points of a design into variants, once each, and prepares the data that they need."""

    space: SpaceSpec
    cache: Path
    say: Callable[[str], None]
    variants: dict[str, Variant] = field(default_factory=dict)
    """By content hash, in the order in which the design named them."""
    names: dict[str, str] = field(default_factory=dict)
    """Name of a point to the content hash of its variant."""
    invalid: dict[str, InvalidPoint] = field(default_factory=dict)
    """By name of the point."""
    tasks: dict[str, Task] = field(default_factory=dict)
    """By canonical JSON of the task."""
    specs: dict[str, VariantSpec | InvalidPoint] = field(default_factory=dict)
    """By name of the point: every point that was looked at, whether the design asks for it in the end or not."""
    costs: dict[tuple[str, str], tuple[Cost, float]] = field(default_factory=dict)
    """By canonical JSON of the model and of the task: of the longest input, and the arithmetic of a usual one."""
    resolver: Resolver = field(init=False)

    def __post_init__(self) -> None:
        self.resolver = Resolver(self.space)

    def design(self) -> Design:
        """A fresh design of the space, asked nothing yet.

        Raises:
            SpaceError: The space cannot answer what its design asks.
        """
        context = self.space.design_context(self._refusal, self._cost)
        return self.space.design.build(context)

    def resolve(self, point: Point) -> Variant | None:
        """The variant of a point; None, and a line in `invalid`, if its settings make no model.

        Raises:
            DataError: The data of its task cannot be prepared.
            PluginError: Its mixer does not know its own cost.
        """
        spec = self._spec(point)
        if isinstance(spec, InvalidPoint):
            self.invalid[point.name] = spec
            return None
        if point.name not in self.names:
            self.names[point.name] = digest = self.resolver.content_hash(spec)
            if digest not in self.variants:
                self.variants[digest] = self._variant(point, spec, digest)
        return self.variants[self.names[point.name]]

    def _spec(self, point: Point) -> VariantSpec | InvalidPoint:
        if point.name not in self.specs:
            try:
                self.specs[point.name] = self.resolver.resolve(point.settings, point.values)
            except ValidationError as error:
                self.specs[point.name] = InvalidPoint(point, self.resolver.reason(point.settings, error))
        return self.specs[point.name]

    def _variant(self, point: Point, spec: VariantSpec, digest: str) -> Variant:
        task = self.prepare(spec)
        read = self.resolver.text(spec.model), self.resolver.text(spec.task)
        if read not in self.costs:
            self.costs[read] = _cost(spec, task, point)
        cost, flops = self.costs[read]
        return Variant(
            name=point.name,
            settings={**point.settings, **{path: str(value) for path, value in point.values.items()}},
            spec=spec,
            hash=digest,
            cost=cost,
            flops=3.0 * flops * spec.training.batch_size * spec.training.steps,
            fingerprint=task.fingerprint,
        )

    def _refusal(self, point: Point) -> str | None:
        spec = self._spec(point)
        return spec.reason if isinstance(spec, InvalidPoint) else None

    def _cost(self, point: Point) -> PointCost:
        spec = self._spec(point)
        assert isinstance(spec, VariantSpec), f"{point.name} makes no model"
        digest = self.resolver.content_hash(spec)
        # Not kept among `variants`: a design may ask what a point costs and never ask for it to be trained.
        variant = self.variants.get(digest) or self._variant(point, spec, digest)
        return PointCost(variant.cost.parameters, variant.flops)

    def trial(self, proposal: Proposal) -> Trial | None:
        """The trial of a proposal; None if its point is invalid."""
        variant = self.resolve(proposal.point)
        if variant is None:
            return None
        return Trial(trial_key(variant.hash, variant.fingerprint, proposal.seed), variant, proposal.seed)

    def prepare(self, spec: VariantSpec) -> Task:
        """The task of a variant, its data made ready.

        Raises:
            DataError: Its data cannot be prepared.
        """
        key = self.resolver.text(spec.task)
        if key not in self.tasks:
            self.tasks[key] = spec.task.open(self.cache, spec.task.prepare(self.cache, self.say))
        return self.tasks[key]

    def trivial(self, variant: Variant) -> dict[str, dict[str, float]]:
        """What is reached on a variant's data without learning: name to metrics, numbers that are not finite left out.

        Raises:
            DataError: Its data cannot be prepared.
            PluginError: Its task cannot say.
        """
        task = self.prepare(variant.spec)
        try:
            found = task.baselines()
        except Exception as error:  # a user's task may raise anything
            raise PluginError(
                f"working out its trivial baselines raised {type(error).__name__}: {error}",
                where=f"task {variant.spec.task.kind_name()}",
                remedy="If the task is your own, mend its `baselines`; `--debug` shows where it was raised.",
            ) from error
        return {
            name: {metric: float(value) for metric, value in metrics.items() if math.isfinite(value)}
            for name, metrics in found.items()
        }


def _cost(spec: VariantSpec, task: Task, point: Point) -> tuple[Cost, float]:
    shape = {"vocabulary": task.shape.vocabulary, "context": task.shape.context, "classes": task.shape.classes}
    try:
        return model_cost(spec.model, **shape), mean_flops(spec.model, task.input_lengths(), **shape)
    except Exception as error:  # a user's mixer may raise anything
        raise PluginError(
            f"working out its cost raised {type(error).__name__}: {error}",
            where=f"variant {point.name}",
            remedy="If the mixer is your own, mend its `cost`; `--debug` shows where it was raised.",
        ) from error


@dataclass(frozen=True, slots=True)
class Plan:
    """What a study would train, as far as its design knows before results."""

    space: SpaceSpec
    variants: tuple[Variant, ...]
    trials: tuple[Trial, ...]
    invalid: tuple[InvalidPoint, ...]
    aliases: Mapping[str, str]
    """Point to the name of the variant that it is the same as."""
    remarks: tuple[str, ...]
    """What the design says of itself, a line each."""

    @property
    def flops(self) -> float:
        """Arithmetic of all trials."""
        return sum(trial.variant.flops for trial in self.trials)


def make_plan(planner: Planner) -> Plan:
    """Ask a fresh design of the planner's space for its trials, without training any.

    Raises:
        AblateError: The baseline makes no model, or a variant's data or cost is not to be had.
    """
    design = planner.design()
    for point in design.points():
        planner.resolve(point)
    if BASELINE in planner.invalid:
        raise SpaceError(
            f"the baseline makes no model: {planner.invalid[BASELINE].reason}",
            where=f"space {planner.space.name}",
            remedy="The first setting of each switch is the baseline's; choose first settings that fit together.",
        )
    trials: dict[str, Trial] = {}
    for proposal in design.ask():
        trial = planner.trial(proposal)
        if trial is not None:
            trials.setdefault(trial.key, trial)
    aliases = {
        name: planner.variants[digest].name
        for name, digest in planner.names.items()
        if planner.variants[digest].name != name
    }
    return Plan(
        space=planner.space,
        variants=tuple(planner.variants.values()),
        trials=tuple(trials.values()),
        invalid=tuple(planner.invalid.values()),
        aliases=aliases,
        remarks=tuple(design.remarks()),
    )

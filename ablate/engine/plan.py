"""The plan of a study: every variant and trial that its design asks for, what they cost, and what cannot be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from ablate.designs.base import BASELINE, Design, Point, Proposal
from ablate.errors import SpaceError
from ablate.model.build import model_cost
from ablate.spec.cost import Cost
from ablate.spec.space import SpaceSpec
from ablate.spec.variant import VariantSpec
from ablate.tasks.base import Task


@dataclass(frozen=True, slots=True)
class PreparedTask:
    """A task made ready: where its files are, and their fingerprint."""

    task: Task
    fingerprint: str


@dataclass(frozen=True, slots=True)
class PlannedVariant:
    """A variant of the plan.

    Attributes:
        name: The name of the first point that gave it.
        settings: The settings of that point.
        spec: The full spec.
        hash: Its content hash.
        cost: Forward pass over one sequence.
        flops: Arithmetic of one whole trial.
    """

    name: str
    settings: Mapping[str, str]
    spec: VariantSpec
    hash: str
    cost: Cost
    flops: float
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Invalid:
    """A point that makes no model, and why."""

    point: Point
    reason: str


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """A trial of the plan: a variant and a seed."""

    key: str
    variant: PlannedVariant
    seed: int


@dataclass(slots=True)
class Planner:
    """Turns the points of a design into variants, once each, and prepares the data that they need."""

    space: SpaceSpec
    cache: Path
    say: Callable[[str], None]
    variants: dict[str, PlannedVariant] = field(default_factory=dict)
    """By content hash, in the order in which the design named them."""
    names: dict[str, str] = field(default_factory=dict)
    """Name of a point to the content hash of its variant."""
    invalid: dict[str, Invalid] = field(default_factory=dict)
    """By name of the point."""
    tasks: dict[str, PreparedTask] = field(default_factory=dict)
    """By canonical JSON of the task."""

    def design(self) -> Design:
        """A fresh design of the space, asked nothing yet."""
        switches = {switch: list(settings) for switch, settings in self.space.switches.items()}
        return self.space.design.build(switches, self.space.variants)

    def resolve(self, point: Point) -> PlannedVariant | None:
        """The variant of a point; None, and a line in `invalid`, if its settings make no model.

        Raises:
            DataError: The data of its task cannot be prepared.
        """
        if point.name in self.names:
            return self.variants[self.names[point.name]]
        if point.name in self.invalid:
            return None
        try:
            spec = self.space.resolve(point.settings)
        except ValidationError as error:
            self.invalid[point.name] = Invalid(point, self.space.reason(point.settings, error))
            return None
        digest = spec.content_hash()
        self.names[point.name] = digest
        if digest not in self.variants:
            prepared = self.prepare(spec)
            shape = prepared.task.shape
            cost = model_cost(
                spec.model, vocabulary=shape.vocabulary, context=shape.context, classes=shape.classes
            )
            self.variants[digest] = PlannedVariant(
                name=point.name,
                settings=dict(point.settings),
                spec=spec,
                hash=digest,
                cost=cost,
                flops=3.0 * cost.flops * spec.training.batch_size * spec.training.steps,
                fingerprint=prepared.fingerprint,
            )
        return self.variants[digest]

    def trial(self, proposal: Proposal) -> PlannedTrial | None:
        """The trial of a proposal; None if its point is invalid."""
        variant = self.resolve(proposal.point)
        if variant is None:
            return None
        return PlannedTrial(variant.spec.trial_key(variant.fingerprint, proposal.seed), variant, proposal.seed)

    def prepare(self, spec: VariantSpec) -> PreparedTask:
        """The task of a variant, its data made ready."""
        key = spec.task.canonical_json()
        if key not in self.tasks:
            fingerprint = spec.task.prepare(self.cache, self.say)
            self.tasks[key] = PreparedTask(spec.task.open(self.cache, fingerprint), fingerprint)
        return self.tasks[key]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a study would train, as far as its design knows before results."""

    space: SpaceSpec
    variants: tuple[PlannedVariant, ...]
    trials: tuple[PlannedTrial, ...]
    invalid: tuple[Invalid, ...]
    aliases: Mapping[str, str]
    """Point to the name of the variant that it is the same as."""

    @property
    def flops(self) -> float:
        """Arithmetic of all trials."""
        return sum(trial.variant.flops for trial in self.trials)


def make_plan(planner: Planner) -> Plan:
    """Ask a fresh design of the planner's space for its trials, without training any.

    Raises:
        SpaceError: The baseline makes no model.
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
    trials: dict[str, PlannedTrial] = {}
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
    )

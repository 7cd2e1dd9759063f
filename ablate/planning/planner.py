"""`Planner`: turns the points of a design into variants and trials with their cost, and prepares their data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import ValidationError

from ablate.designs.base import BASELINE, Design, Point, PointCost, Proposal
from ablate.designs.wrappers import BudgetedDesign, TimedDesign, TunedDesign
from ablate.errors import PluginError, SpaceError
from ablate.nn.model.build import model_cost
from ablate.planning.budget import Budget
from ablate.planning.earlier import EarlierTrials
from ablate.planning.match import UnmatchedError
from ablate.planning.planned import InvalidPoint, Trial, Variant
from ablate.planning.starting import Starting
from ablate.roles import TrialRole
from ablate.spec.code import CodeReader
from ablate.spec.cost import Cost
from ablate.spec.sentences import describe
from ablate.spec.space import SpaceSpec
from ablate.spec.variant import VariantSpec, trial_key
from ablate.tasks.base import Task
from ablate.trained.weights import DEFAULT_STORE, weights_folder
from ablate.training.totals import Totals, totals


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
    scouts: dict[str, Variant] = field(default_factory=dict)
    """By content hash: variants that are trained to tune or time others."""
    unmatched: dict[str, str] = field(default_factory=dict)
    """Points that cannot match the budget of the baseline, by name, with the reason."""
    tasks: dict[str, Task] = field(default_factory=dict)
    """By canonical JSON of the task."""
    specs: dict[tuple[str, str], VariantSpec | InvalidPoint] = field(default_factory=dict)
    """By name of the point (and its tuned values): every resolved point, planned or not."""
    stages: dict[str, Variant] = field(default_factory=dict)
    """The variant that is trained before another one, by the content hash of that one's spec without matching."""
    costs: dict[tuple[str, str, int], tuple[Cost, float]] = field(default_factory=dict)
    """By canonical JSON of the model and of the task: of the longest input, and the arithmetic of a usual one."""
    starting: Starting = field(init=False)
    """Where variants start from trained weights."""
    weights: Path | None = None
    """Folder of the weights of the store's trials; unless set, that of the default store."""
    seeds_before: Sequence[int | Mapping[str, int]] = ()
    """The seeds that the study declared before, until results had been seen."""
    earlier: EarlierTrials = field(default_factory=EarlierTrials)
    """Trials of the store that other code has trained."""
    reader: CodeReader = field(default_factory=CodeReader)
    """Reads the source of users' kinds."""
    budget: Budget = field(init=False)
    """The quantity that every variant matches with the baseline."""

    def __post_init__(self) -> None:
        self.starting = Starting(self.weights or weights_folder(DEFAULT_STORE))
        self.budget = Budget(self.space, self._spec_of, self._measured)

    def design(self) -> Design:
        """A new design of the space.

        Raises:
            SpaceError: The space cannot answer what its design asks.
        """
        context = replace(self.space.design_context(self._refusal, self._cost), seeds_before=self.seeds_before)
        design = self.space.design.build(context)
        if self.space.tune is not None:
            design = TunedDesign(design, self.space.tune, context.direction)
        if self.space.match.equal == "seconds":
            design = TimedDesign(design, self.budget.baseline, self.budget.written)
        if self.space.budgets:
            design = BudgetedDesign(design, self.space.budgets, self.space.training.steps)
        return design

    def resolve_specs(self, points: Iterable[Point]) -> None:
        """Resolve and serialise the specs of many points, which `resolve` would do one by one.

        One kind of work at a time takes a quarter less: its code stays in the processor's caches.
        """
        specs = [self._spec_of(point) for point in points]
        for spec in specs:
            if spec is not None:
                spec.canonical_json()

    def resolve(self, point: Point) -> Variant | None:
        """The variant of a point; None, and a line in `invalid`, if its settings make no model.

        Raises:
            DataError: The data of its task cannot be prepared.
            PluginError: Its mixer does not know its own cost.
        """
        spec = self._spec(point)
        if isinstance(spec, VariantSpec):
            try:
                spec = self.budget.matched(point, spec)
            except UnmatchedError as error:
                self.unmatched[point.name] = str(error)
                spec = InvalidPoint(point, str(error))
        if isinstance(spec, InvalidPoint):
            self.invalid[point.name] = spec
            return None
        stage = self._stage(point, spec)
        spec = self.starting.identified(spec, _identity(stage))
        digest = spec.content_hash()
        if not point.role.scouts:
            self.names[point.name] = digest
        known = self.scouts if point.role.scouts else self.variants
        if digest not in known:
            known[digest] = self._variant(point, spec, digest, stage)
        return known[digest]

    def _stage(self, point: Point, spec: VariantSpec) -> Variant | None:
        """The variant that is trained before this one; None if there is none."""
        if spec.training.init_from is None:
            return None
        key = spec.content_hash()
        if key not in self.stages:
            try:
                before = spec.stage()
            except ValidationError as error:
                (path, rule), *_ = describe(error)
                raise SpaceError(f"`{'.'.join(map(str, path))}`: {rule}", where=f"variant {point.name}") from None
            if before is None:
                return None
            named = replace(point, name=f"stage of {point.name}")
            earlier = self._stage(named, before)
            before = self.starting.identified(before, _identity(earlier))
            digest = before.content_hash()
            self.stages[key] = self.variants.get(digest) or self._variant(named, before, digest, earlier)
        return self.stages[key]

    def specs_before_data(self) -> Iterator[tuple[str, VariantSpec]]:
        """Name and spec of each point that its design begins with, as far as the data and `match` cannot change it."""
        for point in self.design().points():
            spec = self._spec_of(point)
            if spec is not None and (point.name == BASELINE or self.space.match.equal != "parameters"):
                yield point.name, spec

    def _spec(self, point: Point) -> VariantSpec | InvalidPoint:
        key = point.name, repr(point.tuned) if point.tuned else ""
        if key not in self.specs:
            try:
                self.specs[key] = self.space.composer.compose(point.settings, {**point.values, **point.tuned})
            except ValidationError as error:
                self.specs[key] = InvalidPoint(point, self.space.composer.reason(point.settings, error))
        return self.specs[key]

    def _spec_of(self, point: Point) -> VariantSpec | None:
        spec = self._spec(point)
        return spec if isinstance(spec, VariantSpec) else None

    def _priced(self, spec: VariantSpec, point: Point, length: int = 0) -> tuple[Cost, float]:
        """The cost of a variant, and the arithmetic of a forward pass: the mean, or that of inputs of this length."""
        task = self.prepare(spec)
        read = spec.model.canonical_json(), spec.task.canonical_json(), length
        if read not in self.costs:
            self.costs[read] = _cost(spec, task, point, (length,) if length else task.input_lengths())
        return self.costs[read]

    def _totals(self, spec: VariantSpec, point: Point, task: Task, trainable: int, undone: float) -> Totals:
        """Tokens and arithmetic of a trial; `undone` is the arithmetic of frozen gradients for a token."""
        context, lengths = task.shape.context, task.input_lengths()

        def forward(length: int) -> float:
            return self._priced(spec, point, 0 if length == context else length)[1]

        def frozen(length: int) -> float:
            return undone * (sum(lengths) / len(lengths) if length == context else length)

        return totals(spec, task, trainable, forward, frozen)

    def _trained(self, spec: VariantSpec, point: Point) -> tuple[Cost, int, tuple[float, float]]:
        """The cost with trained parameters, how many are frozen, and tokens and arithmetic of a trial."""
        cost, _ = self._priced(spec, point)
        task = self.prepare(spec)
        frozen, undone = self.starting.frozen(spec, task)
        cost = replace(cost, parameters=cost.parameters - frozen)
        return cost, frozen, self._totals(spec, point, task, cost.parameters, undone).whole

    def _measured(self, spec: VariantSpec, point: Point) -> tuple[Cost, float, float]:
        """The cost of a variant, and the tokens and arithmetic of one of its steps, on average if its batches grow."""
        cost, _, (tokens, flops) = self._trained(spec, point)
        return cost, tokens / max(1, spec.training.steps), flops / max(1, spec.training.steps)

    def _variant(self, point: Point, spec: VariantSpec, digest: str, stage: Variant | None = None) -> Variant:
        cost, frozen, (_, flops) = self._trained(spec, point)
        task = self.prepare(spec)
        return Variant(
            name=point.name,
            settings={**point.settings, **{path: str(value) for path, value in point.values.items()}},
            spec=spec,
            hash=digest,
            cost=cost,
            flops=flops,
            fingerprint=task.fingerprint,
            frozen=frozen,
            start=self.starting.transfer(spec, task, None if stage is None else (stage.spec, self.prepare(stage.spec))),
            stage=stage,
            vocabulary=task.shape.vocabulary,
            context=task.shape.context,
            code=self.reader.of(spec),
        )

    def _refusal(self, point: Point) -> str | None:
        spec = self._spec(point)
        return spec.reason if isinstance(spec, InvalidPoint) else None

    def _cost(self, point: Point) -> PointCost:
        spec = self._spec(point)
        assert isinstance(spec, VariantSpec), f"{point.name} makes no model"
        with suppress(UnmatchedError):  # it is not trained; its cost is that of its spec
            spec = self.budget.matched(point, spec)
        digest = self.names.get(point.name, spec.content_hash())  # with its tuned values once they are known
        # Not kept in `variants`: a design may ask for the cost of a point that it never proposes.
        variant = self.variants.get(digest)
        if variant is None:
            stage = self._stage(point, spec)
            variant = self._variant(point, self.starting.identified(spec, _identity(stage)), digest, stage)
        return PointCost(variant.cost.parameters, variant.flops)

    def trial(self, proposal: Proposal) -> Trial | None:
        """The trial of a proposal; None if its point is invalid."""
        variant = self.resolve(proposal.point)
        if variant is None:
            return None
        return self._trial(variant, proposal.seed, proposal.point.role)

    def _trial(self, variant: Variant, seed: int, role: TrialRole) -> Trial:
        stage, code = None, variant.code
        if variant.stage is not None:
            stage = self._trial(variant.stage, seed, TrialRole.STAGE)
            code = code.after(stage.trained_by)
        key = trial_key(variant.hash, variant.fingerprint, seed, code)
        return self.earlier.accepted(Trial(key, variant, seed, role, stage, code))

    def prepare(self, spec: VariantSpec) -> Task:
        """The task of a variant, its data made ready.

        Raises:
            DataError: Its data cannot be prepared.
        """
        key = spec.task.canonical_json()
        if key not in self.tasks:
            self.tasks[key] = spec.task.open(self.cache, spec.task.prepare(self.cache, self.say))
        return self.tasks[key]

    def trivial(self, variant: Variant) -> dict[str, dict[str, float]]:
        """The metrics of trivial baselines on a variant's data, by name, without numbers that are not finite.

        Raises:
            DataError: Its data cannot be prepared.
            PluginError: Its task cannot say.
        """
        task = self.prepare(variant.spec)
        try:
            baselines = task.baselines()
        except Exception as error:  # a user's task may raise anything
            raise PluginError(
                f"working out its trivial baselines raised {type(error).__name__}: {error}",
                where=f"task {variant.spec.task.kind_name()}",
                remedy="If the task is your own, correct its `baselines`; `--debug` shows where it was raised.",
            ) from error
        return {
            name: {metric: float(value) for metric, value in metrics.items() if math.isfinite(value)}
            for name, metrics in baselines.items()
        }


def _cost(spec: VariantSpec, task: Task, point: Point, lengths: tuple[int, ...]) -> tuple[Cost, float]:
    """The cost of a whole input, and the mean arithmetic of the forward pass over inputs of these lengths."""
    shape = {"vocabulary": task.shape.vocabulary, "context": task.shape.context, "classes": task.shape.classes}
    with cost_of_a_plugin(point.name):
        costs = {at: model_cost(spec.model, **shape, length=at) for at in {task.shape.context, *lengths}}
        return costs[task.shape.context], sum(costs[at].flops for at in lengths) / len(lengths)


@contextmanager
def cost_of_a_plugin(variant: str) -> Iterator[None]:
    """Convert an exception in the `cost` of a user's mixer to an error that names the variant.

    Raises:
        PluginError: It raised.
    """
    try:
        yield
    except Exception as error:
        raise PluginError(
            f"working out its cost raised {type(error).__name__}: {error}",
            where=f"variant {variant}",
            remedy="If the mixer is your own, correct its `cost`; `--debug` shows where it was raised.",
        ) from error


def _identity(stage: Variant | None) -> tuple[str, str] | None:
    return None if stage is None else (stage.hash, stage.fingerprint)

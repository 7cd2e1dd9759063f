"""`Planner` turns the points of a design into variants and trials with their cost; `make_plan` asks for all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from pydantic import ValidationError

from ablate.designs.base import BASELINE, Design, Point, PointCost, Proposal
from ablate.designs.wrappers import BudgetedDesign, SuiteDesign, TimedDesign, TunedDesign
from ablate.errors import PluginError, SpaceError
from ablate.locations import DEFAULT_STORE
from ablate.metrics import at_length, rounded_loss, split_length
from ablate.planning.budget import Budget, PointCosts, UnmatchedError
from ablate.planning.plan import EarlierTrials, InvalidPoint, Plan, Trial, Variant, reasons_for, stages_of
from ablate.planning.starting import Starting
from ablate.processes import paused_collector
from ablate.roles import TrialRole
from ablate.spec.code import CodeReader
from ablate.spec.sentences import describe
from ablate.spec.space import SpaceSpec
from ablate.spec.suite import at_task, on_data, split_task
from ablate.spec.variant import VariantSpec, trial_key
from ablate.trained.weights import weights_folder


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
    stages: dict[str, Variant] = field(default_factory=dict)
    """The variant that is trained before another one, by the content hash of that one's spec without matching."""
    costs: PointCosts = field(init=False)
    """Specs, data and costs of points."""
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
    _rules: dict[tuple[str, bool, frozenset[int]], dict[str, dict[str, float]]] = field(default_factory=dict)
    """Metrics of trivial baselines by task, whether at the objective's length too, and bits of rounded weights."""

    def __post_init__(self) -> None:
        starting = Starting(self.weights or weights_folder(DEFAULT_STORE))
        self.costs = PointCosts(self.space, self.cache, self.say, starting)
        self.budget = Budget(self.space, self.costs)

    def design(self) -> Design:
        """A new design of the space.

        Raises:
            SpaceError: The space cannot answer what its design asks.
        """
        context = replace(self.space.design_context(self._refusal, self._cost), seeds_before=self.seeds_before)
        design = self.space.design.build(context)
        if self.space.tasks:
            design = SuiteDesign(design, tuple(self.space.tasks), self.space.tuned)
        if self.space.tune is not None:
            design = TunedDesign(design, self.space.tune, context.direction)
        if self.space.match.equal == "seconds":
            design = TimedDesign(design, self.budget.baseline, self.budget.written)
        if self.space.budgets:
            design = BudgetedDesign(design, self.space.budgets, self.space.training.steps)
        return design

    def resolve(self, point: Point) -> Variant | None:
        """The variant of a point; None, and a line in `invalid`, if its settings are invalid.

        Raises:
            DataError: The data of its task cannot be prepared.
            PluginError: Its mixer does not know its own cost.
        """
        spec = self.costs.spec(point)
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
        spec = self.costs.starting.identified(spec, _identity(stage))
        digest = spec.content_hash()
        if not point.role.scouts:
            self.names[point.name] = digest
        known = self.scouts if point.role.scouts else self.variants
        if digest not in known:
            known[digest] = self._variant(point, spec, digest, stage)
        return known[digest]

    def _stage(self, point: Point, spec: VariantSpec) -> Variant | None:
        """The variant that is trained before this one; None if there is none."""
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
            before = self.costs.starting.identified(before, _identity(earlier))
            digest = before.content_hash()
            self.stages[key] = self.variants.get(digest) or self._variant(named, before, digest, earlier)
        return self.stages[key]

    def specs_before_data(self) -> Iterator[tuple[str, VariantSpec]]:
        """Name and spec of each point that its design begins with, as far as the data and `match` cannot change it."""
        for point in self.design().points():
            spec = self.costs.valid_spec(point)
            if (
                spec is not None
                and spec.builds_model
                and (point.name == BASELINE or self.space.match.equal != "parameters")
            ):
                yield point.name, spec

    def _variant(self, point: Point, spec: VariantSpec, digest: str, stage: Variant | None = None) -> Variant:
        cost, frozen, (_, flops) = self.costs.trial_cost(spec, point)
        task = self.costs.prepare(spec)
        return Variant(
            name=point.name,
            settings={**point.settings, **{path: str(value) for path, value in point.values.items()}},
            spec=spec,
            hash=digest,
            cost=cost,
            flops=flops,
            fingerprint=task.fingerprint,
            frozen=frozen,
            transfer=self.costs.starting.transfer(
                spec, task, None if stage is None else (stage.spec, self.costs.prepare(stage.spec))
            ),
            stage=stage,
            vocabulary=task.shape.vocabulary,
            context=task.shape.context,
            code=self.reader.of(spec),
        )

    def _refusal(self, point: Point) -> str | None:
        spec = self.costs.spec(point)
        return spec.reason if isinstance(spec, InvalidPoint) else None

    def _cost(self, point: Point) -> PointCost:
        spec = self.costs.spec(point)
        assert isinstance(spec, VariantSpec), f"{point.name} is invalid"
        with suppress(UnmatchedError):  # it is not trained; its cost is that of its spec
            spec = self.budget.matched(point, spec)
        digest = self.names.get(point.name, spec.content_hash())  # with its tuned values once they are known
        # Not kept in `variants`: a design may ask for the cost of a point that it never proposes.
        variant = self.variants.get(digest)
        if variant is None:
            stage = self._stage(point, spec)
            variant = self._variant(point, self.costs.starting.identified(spec, _identity(stage)), digest, stage)
        _, _, (tokens, _) = self.costs.trial_cost(spec, point)
        return PointCost(variant.cost.parameters, variant.flops, tokens, spec.training.steps)

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

    def trivial(self, variants: Sequence[Variant]) -> dict[str, dict[str, float]]:
        """The metrics of trivial baselines on the task of the first variant, by name; those that are finite.

        Of a suite on each of its tasks, with names that end with the task. Of another space whose variants differ in
        their task also on each of these, with names that end with its hash.

        Raises:
            DataError: Its data cannot be prepared.
            PluginError: Its task cannot say.
            SpaceError: A task of a suite has no trivial baseline for its objective, or one that is perfect.
        """
        of_task: dict[str, list[VariantSpec]] = {}
        for variant in variants:
            of_task.setdefault(variant.spec.task.content_hash(), []).append(variant.spec)
        known = {task: self._trivial_on(specs) for task, specs in of_task.items()}
        first = variants[0].spec.task.content_hash()
        if not self.space.tasks:
            several = known if len(known) > 1 else {}
            named = {on_data(rule, task): of for task, rules in several.items() for rule, of in rules.items()}
            return {**known[first], **named}
        found: dict[str, dict[str, float]] = {}
        for variant in variants:
            name, task = split_task(variant.name)
            if name == BASELINE:
                on_task = known[variant.spec.task.content_hash()]
                _check_scale(self.space, task, on_task)
                found |= {at_task(rule, task): metrics for rule, metrics in on_task.items()}
        return found

    def _trivial_on(self, specs: Sequence[VariantSpec]) -> dict[str, dict[str, float]]:
        """The metrics of trivial baselines on the task of some variants, by name, as far as one of these measures them.

        Raises:
            DataError: Its data cannot be prepared.
            PluginError: Its task cannot say.
        """
        task, (_, length) = self.costs.prepare(specs[0]), split_length(self.space.objective.metric)
        at_another = any(length in spec.training.lengths for spec in specs)
        rounded = frozenset(bits for spec in specs for bits in spec.training.rounded_bits)
        key = specs[0].task.content_hash(), at_another, rounded
        if key in self._rules:
            return self._rules[key]
        try:
            baselines = task.baselines()
            if length is not None and at_another:
                for name, metrics in task.at_length(length).baselines().items():
                    longer = {at_length(metric, length): value for metric, value in metrics.items()}
                    baselines[name] = {**baselines.get(name, {}), **longer}
            for metrics, bits in product(baselines.values(), sorted(rounded)):
                if "val_loss" in metrics:  # a rule has no weights to round
                    metrics[rounded_loss(bits)] = metrics["val_loss"]
        except Exception as error:  # a user's task may raise anything
            raise PluginError(
                f"working out its trivial baselines raised {type(error).__name__}: {error}",
                where=f"task {specs[0].task.kind_name()}",
                remedy="If the task is your own, correct its `baselines`; `--debug` shows where it was raised.",
            ) from error
        self._rules[key] = {
            name: {metric: float(value) for metric, value in metrics.items() if math.isfinite(value)}
            for name, metrics in baselines.items()
        }
        return self._rules[key]


@paused_collector()
def make_plan(planner: Planner) -> Plan:
    """Ask a fresh design of the planner's space for its trials, without training any.

    Raises:
        AblateError: The baseline is invalid, or a variant's data or cost is not available.
    """
    design = planner.design()
    points = design.points()
    declared = frozenset(variant.name for point in points if (variant := planner.resolve(point)) is not None)
    _refuse_unmatched(planner)
    if (baseline := points[0].name) in planner.invalid:
        raise SpaceError(
            f"the baseline is not a valid model: {planner.invalid[baseline].reason}",
            where=f"space {planner.space.name}",
            remedy="The first setting of each switch is the baseline's; choose first settings that fit together.",
        )
    trials: dict[str, Trial] = {}
    for proposal in design.ask():
        trial = planner.trial(proposal)
        if trial is not None:
            trials.setdefault(trial.key, trial)
    for trial in [*trials.values()]:
        for before in stages_of(trial):
            trials.setdefault(before.key, before)
    trained = {trial.variant.hash for trial in trials.values()}
    later = [planner.trial(proposal) for proposal in design.waiting()]
    aliases = {
        name: planner.variants[digest].name
        for name, digest in planner.names.items()
        if planner.variants[digest].name != name
    }
    _refuse_missing_tasks(planner.space, aliases)
    return Plan(
        space=planner.space,
        variants=tuple(planner.variants.values()),
        trials=tuple(trials.values()),
        invalid=tuple(planner.invalid.values()),
        aliases=aliases,
        same_because=reasons_for(planner.space, points, aliases),
        warnings=(*design.warnings(), *planner.budget.warnings(), *_too_few_tokens(planner)),
        scouts=(
            *(variant for digest, variant in planner.scouts.items() if digest in trained),
            *{t.variant.hash: t.variant for t in trials.values() if t.role is TrialRole.STAGE}.values(),
        ),
        declared=declared,
        later=tuple({trial.key: trial for trial in later if trial is not None}.values()),
        further=design.further_trials(),
    )


def _refuse_missing_tasks(space: SpaceSpec, aliases: Mapping[str, str]) -> None:
    """Refuse a suite in which a variant is another one on some of the tasks only: its mean would be over fewer tasks.

    Raises:
        SpaceError: There is one, or two tasks are the same.
    """
    others: dict[str, set[str]] = {}
    for name, same in aliases.items():
        (variant, task), (other, its_task) = split_task(name), split_task(same)
        if task != its_task:
            raise SpaceError(
                f"the tasks `{task}` and `{its_task}` are the same",
                where=f"space {space.name}, `tasks.{task}`",
                remedy="Leave one of them out, or change its task.",
            )
        others.setdefault(variant, set()).add(f"{task}\n{other}")
    for variant, places in others.items():
        if space.tasks and (len(places) < len(space.tasks) or len({place.partition("\n")[2] for place in places}) > 1):
            task, _, other = next(iter(sorted(places))).partition("\n")
            raise SpaceError(
                f"on the task `{task}` the variant {variant} is the same as {other}, and on others it is not",
                where=f"space {space.name}, `tasks.{task}`",
                remedy="Let the task leave alone what the variant changes, or leave the variant out.",
            )


def _check_scale(space: SpaceSpec, task: str, trivial: Mapping[str, Mapping[str, float]]) -> None:
    """Refuse a task of a suite whose scores have no scale.

    Raises:
        SpaceError: It has no trivial baseline for the objective, or none that is worse than the perfect value.
    """
    metric, aggregate = space.objective.metric, space.aggregate
    assert aggregate is not None, "a suite declares its aggregate"
    sign = 1.0 if space.objective.direction == "maximize" else -1.0
    known = [sign * metrics[metric] for metrics in trivial.values() if metric in metrics]
    best = sign * aggregate.trivial[task] if task in aggregate.trivial else max(known, default=None)
    perfect = aggregate.perfect_value(metric)
    if best is None:
        raise SpaceError(
            f"the task has no trivial baseline for `{metric}`, from which its score is measured",
            where=f"space {space.name}, `tasks.{task}`",
            remedy=f"Declare its value without learning: `aggregate: {{trivial: {{{task}: VALUE}}}}`.",
        )
    if perfect is None or best >= sign * perfect:
        raise SpaceError(
            "the best trivial baseline of a task is perfect already, so that its score has no scale",
            where=f"space {space.name}, `tasks.{task}`",
            got=f"{metric} {sign * best:g} of the trivial baseline, and {perfect} as perfect",
            remedy="Make the task harder, or correct `aggregate.perfect`.",
        )


def _too_few_tokens(planner: Planner) -> Iterator[str]:
    """A warning if no trial sees enough of its data to beat a trivial baseline: then the study has no answer."""
    rules: dict[str, tuple[int, str]] = {}
    most: dict[str, int] = {}
    for variant in planner.variants.values():
        task, training = planner.costs.prepare(variant.spec), variant.spec.training
        if training.init_from is not None or not training.steps:
            return  # a trained model knows more than this data has taught it
        if task.fingerprint not in rules:
            if (rule := task.least_tokens()) is None:
                return
            rules[task.fingerprint] = rule
        seen = training.steps * task.tokens_per_batch(training.batch_size)
        if seen >= rules[task.fingerprint][0]:
            return
        most[task.fingerprint] = max(seen, most.get(task.fingerprint, 0))
    for fingerprint, seen in most.items():
        least, why = rules[fingerprint]
        yield (
            f"A trial sees at most {seen:,} tokens. No model is likely to beat a trivial baseline with fewer than "
            f"{least:,} ({why}), and if none does, the study has no answer. Raise `training.steps`."
        )


def _refuse_unmatched(planner: Planner) -> None:
    """Refuse a space with a variant that cannot match the baseline's budget."""
    for name, reason in planner.unmatched.items():
        others = f" (and {len(planner.unmatched) - 1} more)" if len(planner.unmatched) > 1 else ""
        raise SpaceError(
            f"it cannot match the {planner.space.match.equal} of the baseline{others}: {reason}",
            where=f"variant {name}, `match`",
            remedy="Or match another quantity: steps, tokens, seconds, flops or parameters.",
        )


def _identity(stage: Variant | None) -> tuple[str, str] | None:
    return None if stage is None else (stage.hash, stage.fingerprint)

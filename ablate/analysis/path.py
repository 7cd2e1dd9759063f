"""The path of `simplify`: the removals tried in each round, those kept or rejected with reasons, and the result.

A new design replays the stored results, as when a study is resumed. If two points are the same variant, the store has
only the first of them, and the other is missing from its round.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ablate.analysis.changes import Change, changes_of, setting_changes, titles_of
from ablate.analysis.fairness import Tuning, read_tuning
from ablate.analysis.judging import (
    compare_trials,
    deciding_bounds,
    nothing_learnt_by,
    read_allowances,
    rule_of,
    withheld,
)
from ablate.analysis.runs import (
    StudyReader,
    VariantRuns,
    confirming_study,
    read_confirming,
    read_runs,
    values_of,
)
from ablate.analysis.times import relative_speed
from ablate.designs.base import DesignContext, Point, PointCost
from ablate.designs.simplify import Candidate, SimplifyDesign, SimplifySpec
from ablate.stats import Bounds, Direction, Interval, PairedDifference, Verdict, mean_interval, paired_difference
from ablate.store.records import StudyRecord, VariantRecord


@dataclass(frozen=True, slots=True)
class VariantSummary:
    """The objective and the cost of a variant on the path, or of a rejected removal.

    Attributes:
        variant: Its name.
        objective: Mean of the objective over the seeds that finished, with a 95 % interval.
        difference: Objective minus that of the baseline, paired by seed; None for the baseline.
        parameters: Trainable parameters; None of the user's own trainer.
        flops: Arithmetic of training one trial; None if no trial has said so.
        tokens_per_second: Mean over the rounds of its timing, with a 95 % interval; empty if it was not timed.
        relative_speed: Over that of the baseline (`ablate.analysis.runs.relative_speed`); None if it was not
            timed.
    """

    variant: str
    objective: Interval
    difference: PairedDifference | None
    parameters: int | None
    flops: float | None
    tokens_per_second: Interval
    relative_speed: Interval | None


@dataclass(frozen=True, slots=True)
class Removal:
    """A removal that was tried.

    Attributes:
        parent: Name of the variant from which the component was taken.
        switch: The switch that was turned.
        setting: The setting that it was turned to.
        standing: The variant without the component.
        verdict: On that variant, against the baseline.
        bounds: What the verdict rests on, of variant minus baseline; None if it rests on none.
        kept: Whether it went into the next round.
        on_path: Whether it is a step of the path.
        reason: Why it was kept or refused, for a person.
        words: The component, in words: `the output projection`.
    """

    parent: str
    switch: str
    setting: str
    standing: VariantSummary
    verdict: Verdict
    bounds: Bounds | None
    kept: bool
    on_path: bool
    reason: str
    words: str


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A step of the path on fresh seeds.

    Attributes:
        variant: Its name.
        difference: Objective minus that of the baseline, paired by fresh seed.
        verdict: Of these seeds alone.
    """

    variant: str
    difference: PairedDifference
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class RemovalPath:
    """The whole path of a study.

    Attributes:
        metric: Name of the objective's metric.
        direction: Whether a smaller or a larger metric is better.
        margin: How much worse than the baseline was allowed, in the unit of the metric.
        cost: What was to be small: `parameters` or `flops`.
        beam: How many variants go from a round to the next.
        baseline: Where it began.
        rounds: The removals tried in each complete round; those kept come first, the cheapest of them at the top.
        steps: The removals that lead to the cheapest variant, in order; empty if nothing could go.
        trying: Names of the variants of an incomplete round; empty once the study is complete.
        confirmations: Of the steps, in order, those whose fresh seeds have ended: nothing of the path was chosen by
            these. Empty if none are planned, or none has ended.
        titles: Names of variants to what they are in words.
    """

    metric: str
    direction: Direction
    margin: float
    cost: str
    beam: int
    baseline: VariantSummary
    rounds: tuple[tuple[Removal, ...], ...]
    steps: tuple[Removal, ...]
    trying: tuple[str, ...]
    confirmations: tuple[Confirmation, ...] = ()
    titles: Mapping[str, str] = field(default_factory=dict)

    @property
    def confirmed(self) -> tuple[Removal, ...]:
        """The steps that hold on fresh seeds, up to the first that does not.

        They are tested in this order up to the first failure. So the chance that the last step is as bad as the margin
        is at most that of a single test, for any number of steps.
        """
        holding = itertools.takewhile(lambda one: one.verdict.is_acceptable, self.confirmations)
        return tuple(step for step, _ in zip(self.steps, holding, strict=False))


def read_path(store: StudyReader, name: str) -> RemovalPath | None:
    """The path of a study; None if its design is not `simplify`, or its first round has not a single result.

    Raises:
        NotFoundError: The store holds no such study.
    """
    record = store.study(name)
    runs = read_runs(store, record, record.objective["metric"])
    return path_of(record, runs, read_confirming(store, record), read_tuning(store, record))


def takes_path(record: StudyRecord) -> bool:
    """Whether the design of a study removes one component after the other."""
    return bool(record.space.get("design", {}).get("kind") == "simplify")


def path_of(
    record: StudyRecord,
    runs: Mapping[str, VariantRuns],
    fresh: Mapping[str, VariantRuns] = MappingProxyType({}),
    tuning: Tuning | None = None,
) -> RemovalPath | None:
    """The same, of what was read already.

    Args:
        runs: Variant name to its trials.
        fresh: The same of those that confirm.
        tuning: What was tuned for each variant.
    """
    plain = record.space.get("design", {})
    if not takes_path(record) or not any(run.finished for run in runs.values()):
        return None
    replay = _Replay(record, runs)
    spec = SimplifySpec.model_validate(plain)
    trying = replay.drive(spec.removing(replay.context()))
    design = replay.design
    standings = {variant.name: _summarise_variant(variant, record, runs) for variant in record.variants}
    steps = {step.point.name for step in design.path}
    changes, turned = changes_of(record), setting_changes(record)

    def removal(one: Candidate, kept: tuple[str, ...]) -> Removal:
        name, variant, setting = one.point.name, replay.names[_key(one.point)], one.point.settings[one.switch]
        verdict = _in_words(one.verdict, changes[variant])
        return Removal(
            parent=one.parent,
            switch=one.switch,
            setting=setting,
            standing=standings[variant],
            verdict=verdict,
            bounds=deciding_bounds(verdict, rule_of(record).direction),
            kept=name in kept,
            on_path=name in steps,
            reason=_reason(one, verdict, kept, spec.cost, spec.beam),
            words=turned(one.switch, setting).words or f"{one.switch}={setting}",
        )

    rounds = []
    for tried in design.rounds:
        order = {name: rank for rank, name in enumerate(tried.kept)}
        candidates = sorted(tried.candidates, key=lambda one: order.get(one.point.name, len(order)))
        rounds.append(tuple(removal(candidate, tried.kept) for candidate in candidates))
    path = tuple(removal for tried in rounds for removal in tried if removal.on_path)
    return RemovalPath(
        metric=record.objective["metric"],
        direction=record.objective["direction"],
        margin=float(record.objective["margin"]),
        cost=spec.cost,
        beam=spec.beam,
        baseline=standings[record.baseline],
        rounds=tuple(rounds),
        steps=path,
        trying=trying,
        confirmations=tuple(_confirmations(record, path, runs, fresh, tuning, changes)),
        titles=titles_of(changes),
    )


def _confirmations(
    record: StudyRecord,
    path: Sequence[Removal],
    runs: Mapping[str, VariantRuns],
    fresh: Mapping[str, VariantRuns],
    tuning: Tuning | None,
    changes: Mapping[str, Change],
) -> Iterator[Confirmation]:
    """The steps that have ended on fresh seeds, up to the first that has not."""
    if not fresh:
        return
    confirming = confirming_study(record)
    allowances, rule = read_allowances(confirming, fresh, tuning), rule_of(confirming)
    unlearnt = nothing_learnt_by(record, runs)
    for step in path:
        name = step.standing.variant
        sides = [fresh[of] for of in (name, record.baseline) if of in fresh]
        if len(sides) < 2 or not all(side.has_ended for side in sides):
            return
        difference, verdict = compare_trials(name, *sides, rule=rule, allowances=allowances)
        verdict = withheld(verdict, unlearnt) if unlearnt else _in_words(verdict, changes[name])
        yield Confirmation(name, difference, verdict)


def _in_words(verdict: Verdict, change: Change) -> Verdict:
    """The verdict in the words for what the variant does."""
    return verdict.of_replacement() if change.otherwise else verdict


Corner = tuple[tuple[str, str], ...]


def _key(point: Point) -> Corner:
    return tuple(sorted(point.settings.items()))


class _Replay:
    """The design of a stored study, replayed with its results. Points that were not trained count as invalid."""

    design: SimplifyDesign

    def __init__(self, record: StudyRecord, runs: Mapping[str, VariantRuns]) -> None:
        self._record = record
        self._runs = runs
        self._variants = {tuple(sorted(variant.settings.items())): variant for variant in record.variants}
        self.names = {corner: variant.name for corner, variant in self._variants.items()}

    def context(self) -> DesignContext:
        """The context for the replayed design."""
        return DesignContext(
            switches={switch: tuple(settings) for switch, settings in self._record.space["switches"].items()},
            variants={},
            direction=self._record.objective["direction"],
            margin=float(self._record.objective["margin"]),
            refusal=lambda point: None if _key(point) in self._variants else "it was not trained",
            cost=self._cost,
        )

    def drive(self, design: SimplifyDesign) -> tuple[str, ...]:
        """Ask and tell until a result is missing; names of the variants whose results are."""
        self.design = design
        metric = self._record.objective["metric"]
        while proposals := design.ask():
            missing = []
            for proposal in proposals:
                name = self.names[_key(proposal.point)]
                values, run = self._runs[name].values(metric), self._runs[name]
                if proposal.seed in values or proposal.seed in run.diverged:
                    design.tell(proposal.point, proposal.seed, values.get(proposal.seed))
                else:
                    missing.append(name)
            if missing:
                return tuple(dict.fromkeys(missing))
        return ()

    def _cost(self, point: Point) -> PointCost:
        variant = self._variants[_key(point)]
        return PointCost(variant.parameters or 0, _flops(variant, self._runs[variant.name]) or math.inf)


def _flops(variant: VariantRecord, runs: VariantRuns) -> float | None:
    return next(iter(values_of("flops", variant, runs).values()), None)


def _summarise_variant(variant: VariantRecord, record: StudyRecord, runs: Mapping[str, VariantRuns]) -> VariantSummary:
    metric = record.objective["metric"]
    own, baseline = runs[variant.name], runs[record.baseline]
    difference = None
    if variant.name != record.baseline:
        difference = paired_difference(own.values(metric), baseline.values(metric))
    speed = relative_speed(own.rates, baseline.rates)
    return VariantSummary(
        variant=variant.name,
        objective=mean_interval(own.values(metric).values()),
        difference=difference,
        parameters=variant.parameters,
        flops=_flops(variant, own),
        tokens_per_second=mean_interval(own.rates.values()),
        relative_speed=speed,
    )


def _reason(one: Candidate, verdict: Verdict, kept: tuple[str, ...], cost: str, beam: int) -> str:
    if one.point.name in kept:
        return f"kept: {verdict.reason}"
    if one.acceptable:
        cheaper = "a cheaper removal was" if beam == 1 else f"{len(kept)} cheaper removals were"
        return f"not kept: acceptable, but {cheaper} kept ({cost})"
    return verdict.sentence

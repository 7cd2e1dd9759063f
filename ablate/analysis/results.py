"""The results of a study's trials, metric by metric, for its claims."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from ablate.analysis.fairness import Tuning
from ablate.analysis.judging import Allowances, awaited_seeds, read_regrets, read_tails
from ablate.analysis.runs import VariantRuns, baselines_of, pairs_windows, untimed, values_of
from ablate.analysis.scaling import AxisPoints
from ablate.analysis.times import Target
from ablate.metrics import COSTS, INFERENCE, TIMED, why_absent
from ablate.stats import Allowance, Direction, SeedPlan
from ablate.store.records import StudyRecord, VariantRecord


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a study's variants.

    Attributes:
        record: The study.
        runs: Variant name to its trials.
        schedule: How seeds were added; None if their number was fixed.
        allowances: By how much bounds are widened.
        tuning: What was tuned for each variant; None if nothing was.
        places: Those of the study's axis, which have tails of their own, and models of their own that have learnt.
        unlearnt: Why variants at no place mean nothing, as a clause: no model has learnt enough. Empty if one has.
        behind: Names of the variants at no place that are not shown to have learnt enough.
    """

    record: StudyRecord
    runs: Mapping[str, VariantRuns]
    schedule: SeedPlan | None
    allowances: Allowances
    tuning: Tuning | None
    places: AxisPoints
    unlearnt: str
    behind: Set[str]

    @property
    def unit(self) -> str:
        """What is paired: `seed`, or `window` where nothing was trained."""
        return "window" if pairs_windows(self.record) else "seed"

    def unit_of(self, metric: str) -> str:
        """What is paired of a metric: `round` of a quantity that is timed, else the unit."""
        return "round" if metric in TIMED else self.unit

    def schedule_of(self, metric: str) -> SeedPlan | None:
        """How seeds were added, where a metric has a value for each."""
        return None if metric in TIMED else self.schedule

    @property
    def variants(self) -> dict[str, VariantRecord]:
        """The variants by name."""
        return {variant.name: variant for variant in self.record.variants}

    def direction(self, claimed: Direction | None, metric: str) -> Direction:
        """Which way a metric is better: as claimed, else as is known of a figure of cost, else as the objective."""
        direction: Direction = claimed or COSTS.get(metric) or self.record.objective["direction"]
        return direction

    def metric(self, claimed: str | None) -> str:
        """The metric of a claim: the objective's unless it names one."""
        return claimed or str(self.record.objective["metric"])

    def known_metrics(self) -> list[str]:
        """The metrics that trials have; none before the first one finished."""
        trials = [trial for run in self.runs.values() for trial in run.finished.values()]
        return sorted({name for trial in trials for name in trial.metrics})

    def values(self, name: str, metric: str) -> dict[int, float]:
        """Seed to the metric of a variant's trials that finished with a number."""
        return values_of(metric, self.variants[name], self.runs[name])

    def count(self, name: str, quantity: str) -> float | None:
        """A counted quantity; None if no trial has reported it yet."""
        if quantity == "parameters":
            return self.variants[name].parameters
        if quantity == "activation_bytes":
            return self.variants[name].activation_bytes
        return next(iter(self.values(name, quantity).values()), None)

    def unknown(self, quantity: str, names: Sequence[str]) -> str:
        """Why a counted quantity of these variants is not known, as a clause."""
        listed = " and ".join(names)
        if quantity == "flops":
            return f"no trial of {listed} has reported its {quantity} yet"
        if quantity in INFERENCE:
            return self._untimed(quantity, names)
        return f"an older version of ablate stored {listed}, without {quantity}"

    def is_relative(self, metric: str) -> bool:
        """Whether a metric is the time to a target, which is compared as a ratio."""
        target = Target.of(self.record)
        return target is not None and target.name == metric

    def unmeasured(self, metric: str, names: Iterable[str]) -> str | None:
        """Why a quantity is unknown for these variants, as a clause; None if it is known or a trial may yet have it."""
        runs = {name: self.runs[name] for name in names if name in self.runs}
        unknown = next((run.unknown for run in runs.values() if run.unknown), "")
        if unknown and self.is_relative(metric):
            return f"{metric} is not known: {unknown}"
        if metric not in TIMED:
            without = [name for name in runs if self._lacks(name, metric)]
            owners = f"{' and '.join(without)} {'has' if len(without) == 1 else 'have'}"
            why = why_absent(metric)
            return f"{owners} no {metric}{why and ': '}{why}" if without and metric in self.known_metrics() else None
        lacking = [name for name in runs if not self.values(name, metric)]
        return self._untimed(metric, lacking) if lacking else None

    def _untimed(self, metric: str, names: Sequence[str]) -> str:
        """That a timing lacks these variants, or all."""
        lacking = names if any(run.timed for run in self.runs.values()) else ()
        return f"{metric} is not known: {untimed(self.record.name, lacking)}"

    def _lacks(self, name: str, metric: str) -> bool:
        """Whether a variant has finished trials and none of them has a metric."""
        finished = self.runs[name].finished.values()
        return metric not in COSTS and bool(finished) and not any(metric in trial.metrics for trial in finished)

    def awaited(self, metric: str, names: Iterable[str]) -> str:
        """Which seeds of these variants have ended, as a clause, while others are missing; else empty.

        A figure of cost waits for no other seed.
        """
        if metric in COSTS or self.unit != "seed":
            return ""
        return awaited_seeds(self.schedule, *(self.runs[name] for name in names))

    def diverged(self, name: str, metric: str) -> set[int]:
        """Seeds at which a variant diverged, or finished with a metric that is not a number.

        None for a figure of cost, which does not depend on divergence.
        """
        if metric in COSTS:
            return set()
        overflowed = {s for s, value in self.runs[name].values(metric).items() if not math.isfinite(value)}
        return overflowed | set(self.runs[name].diverged)

    def too_little(self, left: str, right: str) -> str:
        """Why the difference of two variants means nothing, as a clause: neither has learnt enough. Else empty."""
        whys, lacking = list[str](), list[bool]()
        for name in (left, right):
            place = self.places.of(name)
            whys.append(self.unlearnt if place is None else place.unlearnt)
            behind = name in self.behind if place is None else name.removesuffix(place.end) in place.behind
            lacking.append(bool(whys[-1]) or behind)
        if not all(lacking):
            return ""
        return whys[0] if all(whys) else f"neither {left} nor {right} is shown to beat a trivial baseline"

    def schedule_on(self, names: Iterable[str]) -> SeedPlan | None:
        """How seeds were added to these variants: as at their place, which may have seeds of its own."""
        here = [place.rule.schedule for name in names if (place := self.places.of(name)) is not None]
        return next((schedule for schedule in here if schedule is not None), None if here else self.schedule)

    def advantage_allowance(self, left: str, right: str, metric: str, direction: Direction) -> Allowance:
        """The allowance on how much better one variant is than another; figures of cost need none."""
        if metric in COSTS:
            return Allowance()
        allowances, place = self._of_metric(metric, direction), self.places.of(left)
        here = place if place is self.places.of(right) else None
        if metric != self.record.objective["metric"]:
            study, runs = (self.record, self.runs) if here is None else (here.study, here.runs)
            tails, tails_at = read_tails(study, runs, metric, direction)
            allowances = replace(allowances, tails=tails, tails_at=tails_at)
        elif here is not None:
            allowances = replace(allowances, tails=here.allowances.tails, tails_at=here.allowances.tails_at)
        if baselines_of(self.record)[left] == right:
            allowances = replace(allowances, baseline=right)
        return allowances.versus(left, right).turned()

    def trend_allowance(
        self, sides: Mapping[float, tuple[str, str]], weights: Mapping[float, float], metric: str, direction: Direction
    ) -> Allowance:
        """The allowance on a weighted sum of advantages along an axis, such as their slope.

        Args:
            sides: Position to the left and the right variant.
            weights: Position to the weight of its advantage.
        """
        allowance = self.allowance([name for side in sides.values() for name in side], metric)
        tuned = replace(self._of_metric(metric, direction), tails=None, tails_at={})
        for at, weight in weights.items() if metric not in COSTS else ():
            allowance += tuned.versus(*sides[at]).turned().times(weight)
        return allowance

    def _of_metric(self, metric: str, direction: Direction) -> Allowances:
        """The allowances with those for tuned values in the unit of a metric."""
        if self.tuning is None:
            return self._lost(metric)
        other = "" if metric == self.record.objective["metric"] else metric
        return replace(self._lost(metric), regret=read_regrets(self.tuning, direction, other))

    def _lost(self, metric: str) -> Allowances:
        """The allowances of a metric: that a run ended above the target bounds the time to it, and nothing else."""
        return self.allowances if metric == self.record.objective["metric"] else replace(self.allowances, censored={})

    def allowance(self, names: Sequence[str], metric: str) -> Allowance:
        """The allowance on a statement on several variants: no bound is valid if trials of one failed."""
        if metric in COSTS:
            return Allowance()
        allowances = self._lost(metric)
        lost = {*allowances.failed, *allowances.censored}
        parts = [allowances.versus(name, name) for name in names if name in lost]
        return functools.reduce(Allowance.__add__, parts, Allowance())

    def advantage(self, left: str, right: str, metric: str, direction: Direction) -> dict[int, float]:
        """Seed to how much better the left variant is than the right one, over their common seeds.

        Of a time to a target the difference of logarithms.
        """
        ours, theirs = self.values(left, metric), self.values(right, metric)
        if self.is_relative(metric):
            ours, theirs = ({seed: math.log(value) for seed, value in of.items()} for of in (ours, theirs))
        sign = 1.0 if direction == "maximize" else -1.0
        return {seed: sign * (value - theirs[seed]) for seed, value in ours.items() if seed in theirs}

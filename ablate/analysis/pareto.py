"""The Pareto front of a study over two or three of loss, parameters, FLOPs, activation memory, speed ...

A variant is on the front if no other is at least as good in every mean and better in one. Means are measured, so the
dominance of one variant over another is significant only if it is as good in every quantity: by value for quantities
that follow from the spec, by one-sided t-tests of the differences paired by seed for measured ones. The dominating
variants are selected with the same noise, so these tests form one family: all ordered pairs in which the first costs
at most as much as the second. Holm's procedure bounds the family-wise error rate by 5 % per study. As verdicts do, the
tests wait for all trials of a pair and for a model that has learnt, and allow for trials that failed, tuned values and
long tails of the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ablate.analysis.changes import variant_titles
from ablate.analysis.fairness import Tuning, read_tuning
from ablate.analysis.judging import awaited_seeds, nothing_learnt_by, read_allowances, rule_of, worst_margin
from ablate.analysis.runs import StudyReader, VariantRuns, direction_of, read_runs, seed_schedule, values_of
from ablate.analysis.scaling import main_part
from ablate.errors import AblateError
from ablate.metrics import COSTS, COUNTED, TIMED
from ablate.stats import Allowance, Direction, Interval, SeedPlan, dominators, holm, mean_interval, summarise
from ablate.stats.bounds import NO_ALLOWANCE, p_below
from ablate.stats.schedule import ERROR
from ablate.store.records import StudyRecord

LEAST = 3
"""Variants below which there is no front."""


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A variant among others.

    Attributes:
        variant: Its name.
        values: Quantity to its mean over the finished seeds, with a 95 % interval.
        on_front: Whether no other variant dominates it by the means.
        dominated_by: Name of a variant on the front that dominates it; of several a significant one, then the best in
            the first quantity. None on the front.
        significant: Whether the tests show that one to be at least as good in every quantity.
    """

    variant: str
    values: Mapping[str, Interval]
    on_front: bool
    dominated_by: str | None
    significant: bool


@dataclass(frozen=True, slots=True)
class Front:
    """The variants of a study, seen by some quantities.

    Attributes:
        quantities: Names of metrics or figures of cost (`ablate.metrics`), in the order asked for.
        directions: Which way each is better.
        points: The variants that have all quantities and no diverged or pruned seed, sorted by the first quantity,
            best first.
        left_out: Names of the variants that diverged, were stopped early at a seed, lack a quantity, or ended above the
            target of the study at one.
        titles: Names of variants to what they are in words.
        limit: The first quantity of the baseline, worse by the margin; None if it is not the objective.
    """

    quantities: tuple[str, ...]
    directions: tuple[Direction, ...]
    points: tuple[FrontPoint, ...]
    left_out: tuple[str, ...]
    titles: Mapping[str, str]
    limit: float | None = None


def read_front(store: StudyReader, name: str, quantities: Sequence[str] = ()) -> Front | None:
    """The front of a study; None if fewer than three variants have all quantities.

    Args:
        store: Where the study is.
        quantities: Two or three different ones: the objective's metric (`objective` is short for it), `parameters`,
            `flops`, `activation_bytes`, `seconds`, `tokens_per_second`. If left out, those that a search optimises,
            else the objective and the first of `parameters`, `flops` and `activation_bytes` in which variants differ.

    Raises:
        NotFoundError: The store holds no such study.
        AblateError: A quantity is unknown, or there are not two or three.
    """
    record = store.study(name)
    runs = read_runs(store, record, record.objective["metric"])
    return front_of(record, runs, quantities, read_tuning(store, record))


def front_of(
    record: StudyRecord,
    runs: Mapping[str, VariantRuns],
    quantities: Sequence[str] = (),
    tuning: Tuning | None = None,
) -> Front | None:
    """The same, of what was read already.

    Args:
        runs: Variant name to its trials.
        quantities: As for `read_front`.
        tuning: What was tuned for each variant.

    Raises:
        AblateError: A quantity is unknown, or there are not two or three.
    """
    record = main_part(record)
    asked = _check_quantities(record, quantities) if quantities else _default(record, runs)
    if not asked:
        return None
    directions = tuple(asked.values())
    measured = {
        variant.name: [values_of(quantity, variant, runs[variant.name]) for quantity in asked]
        for variant in record.variants
        if not (run := runs[variant.name]).diverged and not run.pruned and not run.unreached
    }
    measured = {name: values for name, values in measured.items() if all(values)}
    if len(measured) < LEAST:
        return None
    means = {name: [mean_interval(value.values()) for value in values] for name, values in measured.items()}
    names = list(measured)
    rows = [[interval.mean or 0.0 for interval in means[name]] for name in names]
    better = dominators(rows, directions)
    dominating = [[at for at in above if not better[at]] for above in better]
    schedule, allowances = seed_schedule(record), read_allowances(record, runs, tuning)
    unlearnt = nothing_learnt_by(record, runs)

    def p_as_good(at: int, index: int) -> float:
        left, right = names[at], names[index]
        if unlearnt or awaited_seeds(schedule, runs[left], runs[right]):
            return 1.0
        return _p_as_good(measured[left], measured[right], asked, schedule, allowances.versus(left, right))

    shown = _significant(dominating, p_as_good, rows, asked)
    first = [row[0] if directions[0] == "minimize" else -row[0] for row in rows]
    points = []
    for index in sorted(range(len(names)), key=lambda at: first[at]):
        above = sorted(dominating[index], key=lambda at: ((at, index) not in shown, first[at]))
        points.append(
            FrontPoint(
                variant=names[index],
                values=dict(zip(asked, means[names[index]], strict=True)),
                on_front=not above,
                dominated_by=names[above[0]] if above else None,
                significant=bool(above) and (above[0], index) in shown,
            )
        )
    left_out = tuple(variant.name for variant in record.variants if variant.name not in measured)
    limit, rule = None, rule_of(record)
    if next(iter(asked)) == rule.metric and record.baseline in means and not rule.relative:
        limit = rows[names.index(record.baseline)][0] + worst_margin(rule.margin, rule.direction)
    return Front(tuple(asked), directions, tuple(points), left_out, variant_titles(record), limit)


Seeds = Mapping[int, float]


def _significant(
    dominating: Sequence[Sequence[int]],
    p_as_good: Callable[[int, int], float],
    rows: Sequence[Sequence[float]],
    asked: Mapping[str, Direction],
) -> set[tuple[int, int]]:
    """The pairs (better, worse) whose dominance is significant jointly, by Holm's procedure over the whole family.

    Only pairs that the means order are tested: no other can be significant.

    Args:
        dominating: For each variant those on the front that dominate it.
        p_as_good: P-value of the test whose rejection says that one is at least as good as another.
        rows: For each variant and quantity its mean.
        asked: The quantities, and which way each is better.
    """
    p_values = {(at, index): p_as_good(at, index) for index, above in enumerate(dominating) for at in above}
    return {pair for pair, p_value in holm(p_values, _family(rows, asked)).items() if p_value <= ERROR}


def _family(rows: Sequence[Sequence[float]], asked: Mapping[str, Direction]) -> int:
    """Number of ordered pairs whose first member costs at most as much as the second in every counted quantity."""
    counted = [place for place, quantity in enumerate(asked) if quantity in COUNTED]
    costs = np.asarray(rows)[:, counted]
    return sum(int((cost <= costs).all(axis=1).sum()) - 1 for cost in costs)


def _p_as_good(
    left: Sequence[Seeds],
    right: Sequence[Seeds],
    asked: Mapping[str, Direction],
    schedule: SeedPlan | None,
    allowance: Allowance,
) -> float:
    """P-value of a test of the hypothesis that left, which costs at most as much, is worse in a measured quantity."""
    largest = 0.0
    for ours, theirs, (quantity, direction) in zip(left, right, asked.items(), strict=True):
        if quantity not in COUNTED:
            larger, smaller = (ours, theirs) if direction == "minimize" else (theirs, ours)
            worse = [larger[seed] - smaller[seed] for seed in sorted(ours.keys() & theirs.keys())]
            timed = quantity in TIMED
            p_value = _p_below_zero(worse, None if timed else schedule, NO_ALLOWANCE if timed else allowance)
            largest = max(largest, p_value)
    return largest


def _p_below_zero(differences: Sequence[float], schedule: SeedPlan | None, allowance: Allowance) -> float:
    """P-value of the test whose rejection says that the true difference lies below 0, over all looks."""
    if summarise(differences).is_flat:
        return 1.0
    if schedule is None:
        return p_below(summarise(differences), 0.0, allowance)
    looks = schedule.looks(len(differences))
    return schedule.overall({n: p_below(summarise(differences[:n]), 0.0, allowance) for n in looks})


def _default(record: StudyRecord, runs: Mapping[str, VariantRuns]) -> dict[str, Direction]:
    aims = record.space.get("design", {}).get("objectives", ())
    if len(aims) > 1:
        return _check_quantities(record, aims[:3])
    for quantity in COUNTED:
        values = {
            value for variant in record.variants for value in values_of(quantity, variant, runs[variant.name]).values()
        }
        if len(values) > 1:
            return _check_quantities(record, ("objective", quantity))
    return {}


def _check_quantities(record: StudyRecord, quantities: Sequence[str]) -> dict[str, Direction]:
    metric = record.objective["metric"]
    names = [metric if quantity == "objective" else quantity for quantity in quantities]
    if not 2 <= len(set(names)) == len(names) <= 3:
        raise AblateError(
            "it is seen by two or three different quantities",
            where="Pareto front",
            got=", ".join(names),
            remedy=f"Name two or three of {', '.join((metric, *COSTS))}.",
        )
    directions: dict[str, Direction] = {}
    for name in names:
        direction = direction_of(name, record)
        if direction is None:
            raise AblateError(
                "which way this quantity is better is not known",
                where="Pareto front",
                expected=f"one of {', '.join((metric, *COSTS))}",
                got=f"`{name}`",
            )
        directions[name] = direction
    return directions

"""Whether verdicts hold for longer training or along a swept number: differences along an axis, and their slope.

The axis is `budget`, where a space has `budgets`; the path of a sweep, such as `model.width`; or the training compute
of the rungs of a ladder. At each place a variant is compared with the baseline of that place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ablate.analysis.changes import changes_of
from ablate.analysis.fairness import read_tuning
from ablate.analysis.judging import Allowances, compare_trials, missing_seeds, read_allowances, rule_of, withheld
from ablate.analysis.numbers import listed, scaled, shortened
from ablate.analysis.rows import JudgingRule
from ablate.analysis.runs import StudyReader, VariantRuns, on_rung, read_runs
from ablate.analysis.trivial import behind, nothing_learnt, standings_of
from ablate.designs.ladder import at_rung
from ablate.spec.design import BASELINE
from ablate.spec.fairness import BUDGET, at_budget
from ablate.spec.suite import on_data
from ablate.stats import Allowance, PairedDifference, SeedPlan, Tails, Verdict, over_looks, summarise, tails_of
from ablate.stats.schedule import ERROR
from ablate.stats.trend import bends, slopes, steps
from ablate.store.records import StudyRecord

Outcome = Literal["holds", "turns", "decided", "undecided"]
COMPUTE = "compute"
"""The axis of a ladder: training FLOPs of the baseline."""
MOST_SLOPES = 8
"""Variants whose slopes a sentence gives; of more the table has them all."""


@dataclass(frozen=True, slots=True)
class ScalePoint:
    """A variant at one place of the axis.

    Attributes:
        at: The place: a budget, or the value of the swept path.
        difference: Objective minus that of the baseline at the same place, paired by seed; none where it diverged.
        verdict: On that difference.
    """

    at: float
    difference: PairedDifference
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Scaling:
    """A variant along the axis.

    Attributes:
        variant: Its name without the place.
        points: In the order of the places.
        slope: Change of the difference for each doubling of the place: a least-squares slope for each seed, and the
            interval of their mean. None where `no_slope` says why.
        steps: Change of the difference from each place to the next, paired by seed; empty where seeds were lost.
        no_slope: Why there is no slope, as a clause; empty if there is one.
        outcome: `holds`: decided alike at every place; `turns`: decided otherwise somewhere; `decided`: at the last
            place, but not at all before it, and nowhere otherwise; `undecided` at the last.
    """

    variant: str
    points: tuple[ScalePoint, ...]
    slope: PairedDifference | None
    outcome: Outcome
    steps: tuple[PairedDifference, ...] = ()
    no_slope: str = ""


@dataclass(frozen=True, slots=True)
class Scalings:
    """All variants of a study along its axis.

    Attributes:
        axis: `budget`, `compute`, or a spec path.
        places: Ascending.
        of: The variants, in the order of the design.
        tails: The long tail of the first place at which differences show one; None if they show none.
    """

    axis: str
    places: tuple[float, ...]
    of: tuple[Scaling, ...]
    tails: Tails | None = None

    @property
    def is_swept(self) -> bool:
        """Whether the variants of the study itself are those of a swept path, at all its values."""
        return self.axis not in (BUDGET, COMPUTE)

    def point(self, name: str) -> ScalePoint | None:
        """The comparison of a variant of a sweep, by its whole name; None if it is not along the axis."""
        variant, _, value = name.partition(f"@{self.axis}=")
        points = (point for scaling in self.of if value and scaling.variant == variant for point in scaling.points)
        return next((point for point in points if point.at == float(value)), None)


def rungs_of(record: StudyRecord) -> dict[int, StudyRecord]:
    """The rungs of a ladder in ascending order, each as a study of its own; empty if the study is not a ladder."""
    values = record.space.get("design", {}).get("rungs") or ()
    rungs = {
        place: _at(on_rung(record, place), _ending(at_rung("", place)), BASELINE) for place, _ in enumerate(values, 1)
    }
    return {
        place: study for place, study in rungs.items() if any(variant.name == BASELINE for variant in study.variants)
    }


def main_part(record: StudyRecord) -> StudyRecord:
    """The part of a study that its answer has rows for: without other budgets, and the largest rung of a ladder."""
    if rungs := rungs_of(record):
        end = at_rung("", max(rungs))
        return _at(record, lambda name: name if name.endswith(end) else None, f"{BASELINE}{end}")
    if not record.space.get("budgets"):
        return record
    return _at(record, lambda name: None if f"@{BUDGET}=" in name else name, record.baseline)


@dataclass(frozen=True, slots=True)
class AxisPoint:
    """A place of an axis.

    Attributes:
        end: How the names of its variants end in the whole study.
        study: Its variants as a study, under their names without that end.
        runs: The trials of each.
        rule: By what they are judged.
        allowances: By how much bounds are widened.
        unlearnt: Why differences there mean nothing, as a clause: no model has learnt enough. Empty if one has.
        behind: Names of the variants that are not shown to have learnt enough.
    """

    end: str
    study: StudyRecord
    runs: Mapping[str, VariantRuns]
    rule: JudgingRule
    allowances: Allowances
    unlearnt: str
    behind: frozenset[str]


@dataclass(frozen=True, slots=True)
class AxisPoints:
    """The places of a study's axis.

    Attributes:
        axis: As that of `Scalings`; empty if the study has none.
        at: Budget, value or compute to the place, ascending.
    """

    axis: str
    at: Mapping[float, AxisPoint]

    def of(self, variant: str) -> AxisPoint | None:
        """The place of a variant, by its whole name; None if it is at none."""
        for place in self.at.values():
            if variant.endswith(place.end) and (place.end or f"@{BUDGET}=" not in variant):
                return place
        return None


NO_AXIS_POINTS = AxisPoints("", {})


def read_axis_points(store: StudyReader, record: StudyRecord) -> AxisPoints:
    """The places of a study's axis that have results."""
    axis, studies = _studies_along(store, record)
    places = {at: _axis_point(store, record, study, end) for at, (study, end) in studies.items()}
    if axis == BUDGET:  # values are tuned at the study's own length, and used at all others
        tuned = places[1.0].allowances.regret
        places = {
            at: replace(place, allowances=replace(place.allowances, regret=tuned)) for at, place in places.items()
        }
    return AxisPoints(axis, places)


def scalings_of(along: AxisPoints) -> Scalings | None:
    """The variants of a study along its axis; None if it has none, or has results at a single place."""
    axis, places = along.axis, along.at
    names = list(dict.fromkeys(variant.name for place in places.values() for variant in place.study.variants))
    scalings = []
    for name in names:
        here = {at: place for at, place in places.items() if name != place.study.baseline and _is_there(name, place)}
        if here:
            replaces = bool(changes_of(next(iter(here.values())).study)[name].otherwise)
            scalings.append(_scaling_of(name, here, replaces))
    tails = next((tails for place in places.values() if (tails := place.allowances.tails) is not None), None)
    if not scalings or len(places) < 2:
        return None
    schedule = next(iter(places.values())).rule.schedule
    return Scalings(axis, tuple(places), tuple(with_tail(scalings, schedule)), tails)


def with_tail(scalings: Sequence[Scaling], schedule: SeedPlan | None) -> Iterator[Scaling]:
    """The same with slopes whose intervals allow for the long tail that all slopes of the study together show.

    The tails of two places cancel in a slope only if the noise of both is alike.

    Args:
        schedule: How seeds were added.
    """
    tails = tails_of(scaling.slope.values for scaling in scalings if scaling.slope is not None)
    for scaling in scalings:
        slope = scaling.slope
        if slope is not None and tails is not None:
            slope = over_looks(summarise(slope.values), schedule, allowance=Allowance(tails=tails))
        yield replace(scaling, slope=slope)


def _axis_point(store: StudyReader, record: StudyRecord, study: StudyRecord, end: str) -> AxisPoint:
    """A place. Where an older ablate kept trivial baselines of the first place alone, others have none."""
    rule = rule_of(study)
    runs = read_runs(store, study, rule.metric)
    allowances, data = read_allowances(study, runs, read_tuning(store, study)), runs[study.baseline].data
    first = store.trials([trial.key for trial in record.planned if trial.variant == record.baseline]).values()
    others = data - {trial.data_fingerprint for trial in first}
    if others and not any(on_data("", "") in name for name in record.trivial):
        return AxisPoint(end, study, runs, rule, allowances, "", frozenset())
    standings = standings_of(runs, rule)
    without = frozenset(standing.name for standing in behind(standings))
    return AxisPoint(end, study, runs, rule, allowances, nothing_learnt(standings), without)


def _is_there(name: str, place: AxisPoint) -> bool:
    """Whether a variant is compared at a place: not where a ladder trains the baseline alone, as it has dropped it."""
    runs = place.runs
    return name in runs and bool(runs[name].states or not runs[place.study.baseline].states)


def _studies_along(store: StudyReader, record: StudyRecord) -> tuple[str, dict[float, tuple[StudyRecord, str]]]:
    """The axis of a study, and for each place of it the study of that place alone, with the end of its names."""
    if rungs := rungs_of(record):
        metric = record.objective["metric"]
        trained = {rung: read_runs(store, study, metric)[study.baseline] for rung, study in rungs.items()}
        compute = {rung: [sum(trial.flops for trial in run.whole(seed)) for seed in run.finished]
                   for rung, run in trained.items()}  # fmt: skip
        return COMPUTE, {sum(of) / len(of): (rungs[rung], at_rung("", rung)) for rung, of in compute.items() if of}
    design, budgets = record.space.get("design", {}), record.space.get("budgets") or ()
    if budgets:
        ends = {float(at): at_budget("", at) for at in budgets}
        places = {at: (_at(record, _ending(end), record.baseline) if end else main_part(record), end)
                 for at, end in ends.items()}  # fmt: skip
        return BUDGET, places
    path, values = design.get("path"), design.get("values") or ()
    if not path:
        return "", {}
    ends = {float(value): f"@{path}={value}" for value in values}
    swept = {at: (_at(record, _ending(end), BASELINE), end) for at, end in ends.items()}
    here = {at: of for at, of in swept.items() if any(variant.name == BASELINE for variant in of[0].variants)}
    return str(path), dict(sorted(here.items()))


def _ending(end: str) -> Callable[[str], str | None]:
    return lambda name: name.removesuffix(end) if name.endswith(end) else None


def _at(record: StudyRecord, name_of: Callable[[str], str | None], baseline: str) -> StudyRecord:
    """The part of a study whose variants have a name there."""
    return replace(
        record,
        baseline=baseline,
        variants=tuple(
            replace(variant, name=name) for variant in record.variants if (name := name_of(variant.name)) is not None
        ),
        planned=tuple(
            replace(trial, variant=name) for trial in record.planned if (name := name_of(trial.variant)) is not None
        ),
    )


def _scaling_of(name: str, at: Mapping[float, AxisPoint], replaces: bool) -> Scaling:
    points, gaps, lost, waits = [], {}, [], []
    for place, here in at.items():
        rule, own, base = here.rule, here.runs[name], here.runs[here.study.baseline]
        shown, verdict = compare_trials(name, own, base, rule=rule, allowances=here.allowances)
        verdict = verdict.of_replacement() if replaces else verdict
        points.append(ScalePoint(place, shown, withheld(verdict, here.unlearnt) if here.unlearnt else verdict))
        values, theirs = own.values(rule.metric), base.values(rule.metric)
        gaps[place] = {seed: values[seed] - theirs[seed] for seed in values.keys() & theirs.keys()}
        lost += [place] if own.diverged or own.failed or own.pruned or base.diverged or base.failed else []
        waits += [place] if missing_seeds(own, base) or own.unplanned or base.unplanned else []
    schedule = rule.schedule
    outcome = _outcome(points)
    if lost:
        where = listed(f"{place:g}" for place in lost)
        return Scaling(name, tuple(points), None, outcome, no_slope=f"trials were lost at {where}")
    if len(gaps) < 2:
        return Scaling(name, tuple(points), None, outcome, no_slope="it was compared at one place alone")
    changes = tuple(over_looks(summarise(list(step.values())), schedule) for step in steps(gaps))
    if min(gaps) <= 0:
        return Scaling(name, tuple(points), None, outcome, changes, f"{min(gaps):g} cannot be doubled")
    by_seed = slopes(gaps)
    why = "seeds are missing" if waits or not by_seed else "it bends" if bends(gaps) else ""
    if void := [f"{place:g}" for place, here in at.items() if here.unlearnt]:
        why = f"no model has learnt enough at {listed(void)}"
    if why:
        return Scaling(name, tuple(points), None, outcome, changes, why)
    return Scaling(name, tuple(points), over_looks(summarise(list(by_seed.values())), schedule), outcome, changes)


def _outcome(points: Sequence[ScalePoint]) -> Outcome:
    words = [point.verdict.word for point in points]
    if words[-1] == "undecided":
        return "undecided"
    if len(set(words) - {"undecided"}) > 1:
        return "turns"
    return "decided" if "undecided" in words else "holds"


def scaling_sentences(scalings: Scalings | None, metric: str) -> Iterator[str]:
    """Which verdicts hold along the axis, which change, and how each difference changes, all of them or none."""
    if scalings is None:
        return
    axis = "training" if scalings.axis == BUDGET else scalings.axis
    said = {
        "holds": "The verdicts hold from {} to {}",
        "turns": "The verdicts change between {} and {}",
        "decided": "Decided at {1}, but not at every place before",
        "undecided": "Undecided at {1}",
    }
    for outcome, beginning in said.items():
        ends: dict[tuple[float, float], list[Scaling]] = {}
        for scaling in scalings.of:
            if scaling.outcome == outcome and len(scaling.points) > 1:
                ends.setdefault((scaling.points[0].at, scaling.points[-1].at), []).append(scaling)
        for places, rows in ends.items():
            named = shortened(f"{row.variant} ({_words(row)})" for row in rows)
            yield f"{beginning.format(*(_axis_words(scalings.axis, at) for at in places))}: {'; '.join(named)}."
    if any(point.verdict.is_decided for scaling in scalings.of for point in scaling.points):
        looks = len(scalings.places)
        yield (
            f"Each of the {looks} places has verdicts of its own, each wrong in at most 5 % of cases: the best of the "
            f"{looks} is wrong in up to {min(100.0, 100 * ERROR * looks):g} %."
        )
    if len(scalings.of) > MOST_SLOPES:
        yield f"The table along {scalings.axis} shows how each difference changes."
    elif any(scaling.slope is not None or scaling.steps for scaling in scalings.of):
        named = [f"{scaling.variant} {slope_cell(scaling)}" for scaling in scalings.of]
        yield (
            f"With each doubling of {axis} the difference of {metric} changes by (95 % interval; in brackets, by "
            f"step): {'; '.join(named)}."
        )


def slope_cell(one: Scaling) -> str:
    """The slope of a variant with the change of each step, or why it has none."""
    steps = ", ".join(f"{step.difference:+.2g}" for step in one.steps if step.difference is not None)
    whole = slope_words(one.slope) if one.slope is not None else f"no slope: {one.no_slope}"
    return f"{whole} ({steps})" if steps and len(one.points) > 2 else whole


def slope_words(slope: PairedDifference) -> str:
    """A slope with its 95 % interval."""
    ends = [f"{end:+.2g}" for end in (slope.difference, slope.low, slope.high) if end is not None]
    return f"{ends[0]} [{', '.join(ends[1:])}]" if ends[1:] else ends[0]


def _axis_words(axis: str, at: float) -> str:
    if axis == COMPUTE:
        return f"{scaled(at)}FLOP"
    return f"budget {at:g}" if axis == BUDGET else f"{axis} {at:g}"


def _words(one: Scaling) -> str:
    words = [point.verdict.word for point in one.points]
    return words[0] if len(set(words)) == 1 else ", then ".join(words)

"""Whether verdicts hold for longer training or along a swept number: differences along an axis, and their slope.

The axis is `budget`, where a space has `budgets`, or the path of a sweep, such as `model.width` or `model.depth`. At
each place a variant is compared with the baseline of that place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ablate.analysis.allowances import read_allowances
from ablate.analysis.changes import changes_of
from ablate.analysis.judging import judge_trials
from ablate.analysis.runs import StudyReader, VariantRuns, read_runs, seed_schedule
from ablate.analysis.text import listed, shortened
from ablate.spec.budgets import BUDGET, at_budget
from ablate.spec.design import BASELINE
from ablate.stats import PairedDifference, Verdict, over_looks, paired_difference, summarise
from ablate.stats.trend import slopes
from ablate.store.records import StudyRecord

Outcome = Literal["holds", "turns", "decided", "undecided"]


@dataclass(frozen=True, slots=True)
class ScalePoint:
    """A variant at one place of the axis.

    Attributes:
        at: The place: a budget, or the value of the swept path.
        difference: Objective minus that of the baseline at the same place, paired by seed.
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
            interval of their mean. None below two places, or without a seed that finished at all of them.
        outcome: `holds`: decided at the last place as at the first; `turns`: decided otherwise; `decided`: at the last
            place, but not at the first; `undecided` at the last.
    """

    variant: str
    points: tuple[ScalePoint, ...]
    slope: PairedDifference | None
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Scalings:
    """All variants of a study along its axis.

    Attributes:
        axis: `budget`, or a spec path.
        places: Ascending.
        of: The variants, in the order of the design.
    """

    axis: str
    places: tuple[float, ...]
    of: tuple[Scaling, ...]


def at_own_length(record: StudyRecord) -> StudyRecord:
    """A study without its variants at other budgets, which are compared among themselves."""
    if not record.space.get("budgets"):
        return record
    return _at(record, lambda name: None if f"@{BUDGET}=" in name else name, record.baseline)


def read_scalings(store: StudyReader, record: StudyRecord) -> Scalings | None:
    """The variants of a study along its axis; None if it has none, or trains no two of them at two places.

    Args:
        store: Of its trials.
        record: The study, as the store has it.
    """
    axis, studies = _places(record)
    runs = {at: read_runs(store, study, record.objective["metric"]) for at, study in studies.items()}
    changes = {at: changes_of(study) for at, study in studies.items()}
    names = list(dict.fromkeys(one.name for study in studies.values() for one in study.variants))
    scalings = []
    for name in names:
        places = [at for at, study in studies.items() if name != study.baseline and name in runs[at]]
        if len(places) > 1:
            replaces = bool(changes[places[0]][name].otherwise)
            scalings.append(_scaling(name, {at: (studies[at], runs[at]) for at in places}, replaces))
    return Scalings(axis, tuple(studies), tuple(scalings)) if scalings else None


def _places(record: StudyRecord) -> tuple[str, dict[float, StudyRecord]]:
    """The axis of a study, and for each place of it the study of that place alone."""
    design, budgets = record.space.get("design", {}), record.space.get("budgets") or ()
    if budgets:
        ends = {float(at): at_budget("", at) for at in budgets}
        places = {at: _at(record, _ending(end), record.baseline) if end else at_own_length(record)
                 for at, end in ends.items()}  # fmt: skip
        return BUDGET, dict(sorted(places.items()))
    path, values = design.get("path"), design.get("values") or ()
    if not path or any(value <= 0 for value in values):
        return "", {}
    swept = {float(value): _at(record, _ending(f"@{path}={value}"), BASELINE) for value in values}
    here = {at: study for at, study in swept.items() if any(one.name == BASELINE for one in study.variants)}
    return str(path), dict(sorted(here.items()))


def _ending(end: str) -> Callable[[str], str | None]:
    return lambda name: name.removesuffix(end) if name.endswith(end) else None


def _at(record: StudyRecord, name_of: Callable[[str], str | None], baseline: str) -> StudyRecord:
    """The part of a study whose variants have a name there."""
    return replace(
        record,
        baseline=baseline,
        variants=tuple(replace(one, name=name) for one in record.variants if (name := name_of(one.name)) is not None),
        planned=tuple(
            replace(one, variant=name) for one in record.planned if (name := name_of(one.variant)) is not None
        ),
    )


def _scaling(name: str, at: Mapping[float, tuple[StudyRecord, Mapping[str, VariantRuns]]], replaces: bool) -> Scaling:
    points, gaps = [], {}
    for place, (study, runs) in at.items():
        metric, schedule = study.objective["metric"], seed_schedule(study)
        own, base = runs[name], runs[study.baseline]
        values, baseline_values = own.values(metric), base.values(metric)
        verdict = judge_trials(
            own,
            base,
            metric=metric,
            margin=float(study.objective["margin"]),
            direction=study.objective["direction"],
            schedule=schedule,
            allowance=read_allowances(study, runs).versus(name, study.baseline),
        )
        verdict = verdict.of_replacement() if replaces else verdict
        points.append(ScalePoint(place, over_looks(paired_difference(values, baseline_values), schedule), verdict))
        gaps[place] = {seed: values[seed] - baseline_values[seed] for seed in values.keys() & baseline_values.keys()}
    by_seed = slopes(gaps)
    slope = over_looks(summarise(list(by_seed.values())), schedule) if by_seed else None
    return Scaling(name, tuple(points), slope, _outcome(points))


def _outcome(points: Sequence[ScalePoint]) -> Outcome:
    first, last = points[0].verdict.word, points[-1].verdict.word
    if last == "undecided":
        return "undecided"
    if first == "undecided":
        return "decided"
    return "holds" if first == last else "turns"


def scaling_sentences(scalings: Scalings | None, metric: str) -> Iterator[str]:
    """Which verdicts hold along the axis, which change, and which differences depend on it with 95 % confidence."""
    if scalings is None:
        return
    axis = "training" if scalings.axis == BUDGET else scalings.axis
    first, last = _place(scalings.axis, scalings.places[0]), _place(scalings.axis, scalings.places[-1])
    said = {
        "holds": f"The verdicts hold from {first} to {last}",
        "turns": f"The verdicts change between {first} and {last}",
        "decided": f"Decided at {last}, but not at {first}",
        "undecided": f"Undecided at {last}",
    }
    for outcome, beginning in said.items():
        if rows := [one for one in scalings.of if one.outcome == outcome]:
            named = shortened(f"{one.variant} ({_words(one)})" for one in rows)
            yield f"{beginning}: {'; '.join(named)}."
    moving = [one for one in scalings.of if one.slope and one.slope.low is not None and one.slope.high is not None
              and (one.slope.low > 0 or one.slope.high < 0) and not one.slope.is_flat]  # fmt: skip
    if moving:
        named = [f"{one.variant} {slope_words(one.slope)}" for one in moving if one.slope]
        yield f"With each doubling of {axis} the difference of {metric} changes by (95 % interval): {listed(named)}."


def slope_words(slope: PairedDifference) -> str:
    """A slope with its 95 % interval."""
    if slope.difference is None:
        return "-"
    if slope.low is None or slope.high is None:
        return f"{slope.difference:+.2g}"
    return f"{slope.difference:+.2g} [{slope.low:+.2g}, {slope.high:+.2g}]"


def _place(axis: str, at: float) -> str:
    return f"budget {at:g}" if axis == BUDGET else f"{axis} {at:g}"


def _words(one: Scaling) -> str:
    first, last = one.points[0].verdict.word, one.points[-1].verdict.word
    return first if first == last else f"{first}, then {last}"

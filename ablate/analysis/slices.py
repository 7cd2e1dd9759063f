"""Slices of a study along a numeric axis: how the objective changes with depth, heads, context, a rate ...

An axis is a spec path that the variants set to numbers (a sweep, a search over ranges), or a switch of at least three
settings that are all named by numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ablate.analysis.factors import Factors, factors_of, is_logarithmic, place
from ablate.analysis.runs import StudyReader, VariantRuns, read_runs
from ablate.analysis.scaling import at_own_length
from ablate.stats import Direction, Interval, PairedDifference, mean_interval, paired_difference
from ablate.store.records import StudyRecord, VariantRecord

LEAST_SETTINGS = 3
"""Settings that a switch has at least if it is an axis."""


@dataclass(frozen=True, slots=True)
class SlicePoint:
    """A variant on an axis.

    Attributes:
        at: Its value on the axis.
        variant: Its name.
        objective: Mean over the finished seeds, with a 95 % interval.
        gap: Objective minus that of the first line at the same place, paired by seed; None on the first line, and
            where that has no variant.
        diverged: How many of its seeds diverged; the mean leaves them out.
    """

    at: float
    variant: str
    objective: Interval
    gap: PairedDifference | None
    diverged: int


@dataclass(frozen=True, slots=True)
class SliceLine:
    """Variants that differ in nothing but their place on the axis.

    Attributes:
        name: What they have in common: `baseline`, a named variant, or the settings that differ from the baseline's.
        points: In the order of the axis; those without a result are left out.
    """

    name: str
    points: tuple[SlicePoint, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """The objective along an axis.

    Attributes:
        axis: The path or switch.
        metric: Name of the objective's metric.
        direction: Whether a smaller or a larger metric is better.
        logarithmic: Whether the places are better seen on a logarithmic scale.
        lines: That with the baseline's settings first.
        scattered: Whether hardly any place has more than one line, as in a search, so that lines cannot be compared.
    """

    axis: str
    metric: str
    direction: Direction
    logarithmic: bool
    lines: tuple[SliceLine, ...]
    scattered: bool


def read_slices(store: StudyReader, name: str) -> tuple[Slice, ...]:
    """A slice along each numeric axis of a study that has results at two places of it; none for most designs.

    Raises:
        NotFoundError: The store holds no such study.
    """
    record = store.study(name)
    return slices_of(record, read_runs(store, record, record.objective["metric"]))


def slices_of(record: StudyRecord, runs: Mapping[str, VariantRuns]) -> tuple[Slice, ...]:
    """The same, of what was read already.

    Args:
        record: The study.
        runs: Variant name to its trials.
    """
    record = at_own_length(record)
    found = [_slice(axis, record, runs) for axis in _axes(factors_of(record))]
    return tuple(one for one in found if len({point.at for line in one.lines for point in line.points}) > 1)


def _axes(factors: Factors) -> list[str]:
    numbered = [
        switch
        for switch, settings in factors.switches.items()
        if len(settings) >= LEAST_SETTINGS and all(map(_is_number, settings))
    ]
    return [*factors.axes, *numbered]


def _is_number(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False


def _slice(axis: str, record: StudyRecord, runs: Mapping[str, VariantRuns]) -> Slice:
    metric = record.objective["metric"]
    lines: dict[str, list[tuple[float, VariantRecord]]] = {}
    for variant in record.variants:
        at = place(variant, axis)
        if at is not None and runs[variant.name].values(metric):
            lines.setdefault(_line(variant, axis, record), []).append((at, variant))
    ordered = {name: sorted(points, key=lambda point: point[0]) for name, points in lines.items()}
    first = dict(next(iter(ordered.values()), ()))
    places = tuple(sorted({at for points in ordered.values() for at, _ in points}))

    def point(at: float, variant: VariantRecord) -> SlicePoint:
        values, other = runs[variant.name].values(metric), first.get(at)
        gap = None
        if other is not None and other.name != variant.name:
            gap = paired_difference(values, runs[other.name].values(metric))
        diverged = len(runs[variant.name].diverged)
        return SlicePoint(at, variant.name, mean_interval(values.values()), gap, diverged)

    return Slice(
        axis=axis,
        metric=metric,
        direction=record.objective["direction"],
        logarithmic=bool(places) and is_logarithmic(places),
        lines=tuple(SliceLine(name, tuple(point(*one) for one in points)) for name, points in ordered.items()),
        scattered=len(ordered) > 1 and len(places) > 0.75 * sum(map(len, ordered.values())),
    )


def _line(variant: VariantRecord, axis: str, record: StudyRecord) -> str:
    """What a variant has in common with its neighbours on the axis."""
    name, _, along = variant.name.partition("@")
    rest = [value for value in along.split(",") if value and not value.startswith(f"{axis}=")]
    if axis in record.space.get("switches", {}):
        changed = [part for part in name.split(",") if not part.startswith(f"{axis}=")]
        name = ",".join(changed) or record.baseline
    return f"{name}@{','.join(rest)}" if rest else name

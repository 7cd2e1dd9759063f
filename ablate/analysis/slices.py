"""What varies in a study, and slices along a numeric axis: the objective against depth, heads, context, a rate ...

The parameters of a study's trials are whatever differs between its variants, as exports name it. A switch is a
parameter with its settings as values. So is every spec path that a design sweeps, searches or lengthens, that `tune` or
`tuned` chooses, that `match` solves, or that a stage trains otherwise; every variant has its value.

An axis is a spec path that the variants set to numbers (a sweep, a search over ranges), or a switch of at least three
settings that are all named by numbers. The lengths at which trained models are measured (`training.evaluate_at`) are an
axis too, along which each variant is a line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ablate.analysis.changes import setting_titles
from ablate.analysis.runs import StudyReader, VariantRuns, read_runs
from ablate.analysis.scaling import main_part
from ablate.metrics import INITIAL, INSIDES, STACKS, at_length, inside_name, split_length
from ablate.spec.design import split_axis
from ablate.spec.fairness import STEPS, MatchSpec
from ablate.spec.paths import full_path, value_at
from ablate.spec.task import TaskSpec
from ablate.stats import Direction, Interval, PairedDifference, mean_interval, paired_difference
from ablate.store.records import StudyRecord, VariantRecord


@dataclass(frozen=True, slots=True)
class Factors:
    """What varies in a study.

    Attributes:
        switches: Each switch that the trained variants turn, to all its settings in the order of the space, the
            baseline's first.
        axes: Each numeric path that they set to at least two values, to those values, ascending.
    """

    switches: Mapping[str, tuple[str, ...]]
    axes: Mapping[str, tuple[float, ...]]


def factors_of(record: StudyRecord) -> Factors:
    """What varies among the variants of a study, as far as it has planned them."""
    options: dict[str, Any] = record.space.get("switches", {})
    seen: dict[str, set[str]] = {}
    for variant in record.variants:
        for name, setting in variant.settings.items():
            seen.setdefault(name, set()).add(setting)
    switches = {switch: tuple(settings) for switch, settings in options.items() if len(seen.get(switch, ())) > 1}
    axes = {name: axis for name in seen if name not in options and len(axis := _axis(record, name)) > 1}
    return Factors(switches, axes)


def axis_value(variant: VariantRecord, axis: str) -> float | None:
    """The value of a variant on a numeric axis, from its settings or else from its spec; None if there is no number."""
    try:
        number = float(variant.settings.get(axis, _of_spec(variant, axis)))
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def is_logarithmic(values: tuple[float, ...]) -> bool:
    """Whether ascending values are better seen on a logarithmic scale: above 0, and over a range of 8 or more."""
    return values[0] > 0 and values[-1] >= 8 * values[0]


def linear_axes(record: StudyRecord) -> set[str]:
    """Titles of the parameters that a search draws evenly, not by their logarithms."""
    ranges = record.space.get("design", {}).get("ranges", {})
    titles = setting_titles([*record.space.get("switches", {}), *ranges])
    return {titles[path] for path, of in ranges.items() if not of.get("log")}


def crosses(variants: Sequence[VariantRecord], switches: Mapping[str, tuple[str, ...]], axes: Sequence[str]) -> bool:
    """Whether every setting of the switches occurs with at least two combinations of everything else that varies.

    A grid, a fraction of one and a search cross their switches; turning one switch at a time does not.
    """
    beside: dict[tuple[str, str], set[tuple[object, ...]]] = {}
    for variant in variants:
        for switch in switches:
            others = tuple(variant.settings[other] for other in switches if other != switch)
            along = tuple(axis_value(variant, axis) for axis in axes)
            beside.setdefault((switch, variant.settings[switch]), set()).add((*others, *along))
    return all(len(combinations) > 1 for combinations in beside.values())


def varies(record: StudyRecord) -> bool:
    """Whether a study estimates effects of its switches, or varies a number."""
    factors = factors_of(record)
    return bool(factors.axes) or (bool(factors.switches) and crosses(record.variants, factors.switches, ()))


def searches(record: StudyRecord) -> bool:
    """Whether results decide which points a study trains."""
    return not record.traits.plans_points


def _of_spec(variant: VariantRecord, path: str) -> Any:
    value: Any = variant.spec
    for key in full_path(path).split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _axis(record: StudyRecord, name: str) -> tuple[float, ...]:
    places = [axis_value(variant, name) for variant in record.variants]
    return tuple(sorted({at for at in places if at is not None}))


def varied_paths(record: StudyRecord) -> tuple[str, ...]:
    """The spec paths whose values a study varied besides its switches, as its space writes them."""
    paths = dict.fromkeys(_paths(record))
    full = {full_path(path): path for path in reversed(paths)}  # the first spelling of a path counts
    return tuple(path for path in paths if full[full_path(path)] == path)


def switch_settings(record: StudyRecord, variant: VariantRecord) -> dict[str, str]:
    """The setting of every switch in a variant."""
    known = record.space.get("switches", variant.settings)  # a record that no space made has nothing but switches
    return {switch: setting for switch, setting in variant.settings.items() if switch in known}


def varied_values(record: StudyRecord, variant: VariantRecord) -> dict[str, Any]:
    """The value of every varied path in a variant, from its spec; a path that its spec does not have is left out."""
    values = {}
    for path in varied_paths(record):
        try:
            values[path] = value_at(variant.spec, full_path(path))
        except (KeyError, TypeError):  # another kind, which has no such field
            if path in variant.settings:
                values[path] = _number(variant.settings[path])
    return values


def _paths(record: StudyRecord) -> Iterator[str]:
    space = record.space
    for variant in (*record.variants, *record.scout_variants):
        switches = switch_settings(record, variant)
        yield from (path for path in variant.settings if path not in switches)
        yield from _of_stages(variant.spec)
    yield from (space.get("tune") or {}).get("grid", {})
    yield from space.get("tuned") or {}
    if (matched := MatchSpec.model_validate(space.get("match") or {}).path) is not None:
        yield matched
    if space.get("budgets"):
        yield STEPS


def _of_stages(spec: Mapping[str, Any]) -> Iterator[str]:
    """The paths that the stages before a variant train otherwise."""
    start = spec.get("training", {}).get("init_from")
    stage = start.get("stage") if isinstance(start, Mapping) else None
    yield from stage or ()


def _number(text: str) -> Any:
    """The value of a path that a study has stored as text alone."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


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
        direction: Whether a smaller or a larger metric is better; None of a measure that is only looked at.
        logarithmic: Whether the places are better seen on a logarithmic scale.
        lines: That with the baseline's settings first.
        scattered: Whether hardly any place has more than one line, as in a search, so that lines cannot be compared.
        trained: On the axis of `training.evaluate_at`, the length at which all variants were trained; None on other
            axes, and where they were trained at different lengths.
    """

    axis: str
    metric: str
    direction: Direction | None
    logarithmic: bool
    lines: tuple[SliceLine, ...]
    scattered: bool = False
    trained: float | None = None


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
        runs: Variant name to its trials.
    """
    record = main_part(record)
    slices = [_slice(axis, record, runs) for axis in _axes(factors_of(record))]
    found = [*slices, *lengths_of(record, runs)]
    return tuple(
        found_slice
        for found_slice in found
        if len({point.at for line in found_slice.lines for point in line.points}) > 1
    )


def lengths_of(record: StudyRecord, runs: Mapping[str, VariantRuns]) -> Iterator[Slice]:
    """The metric of the objective along each field that sets the lengths of `training.evaluate_at`; mostly none.

    Args:
        record: The study.
        runs: Variant name to its trials.
    """
    metric, _ = split_length(record.objective["metric"])
    asked = {variant.name: variant.spec.get("training", {}).get("evaluate_at") or {} for variant in record.variants}
    for axis in dict.fromkeys(name for lengths in asked.values() for name in lengths):
        measured = [variant for variant in record.variants if axis in asked[variant.name]]
        trained = {variant.name: _trained_length(variant, axis) for variant in measured}
        lines, first = list[SliceLine](), dict[float, dict[int, float]]()
        for variant in measured:
            named = {float(length): at_length(metric, length) for length in asked[variant.name][axis]}
            if (own := trained[variant.name]) is not None:
                named[own] = metric
            values = {at: runs[variant.name].values(name) for at, name in sorted(named.items())}
            values = {at: by_seed for at, by_seed in values.items() if _has_mean(by_seed)}
            diverged = len(runs[variant.name].diverged)
            points = tuple(
                SlicePoint(
                    at,
                    variant.name,
                    mean_interval(by_seed.values()),
                    paired_difference(by_seed, first[at]) if at in first else None,
                    diverged,
                )
                for at, by_seed in values.items()
            )
            first = first or values
            lines += [SliceLine(variant.name, points)] if points else []
        yield Slice(
            axis=axis,
            metric=metric,
            direction=record.objective["direction"],
            logarithmic=True,
            lines=tuple(lines),
            trained=next(iter(trained.values())) if len({*trained.values()}) == 1 else None,
        )


def _has_mean(by_seed: Mapping[int, float]) -> bool:
    """Whether there are values and all are finite: those that are would be a biased selection."""
    return bool(by_seed) and all(map(math.isfinite, by_seed.values()))


def depths_of(record: StudyRecord, runs: Mapping[str, VariantRuns]) -> tuple[Slice, ...]:
    """Each measure of `training.insides` over the blocks, with a line for each variant; none where none was measured.

    Block 0 is the input of the first block.

    Args:
        record: The study.
        runs: Variant name to its trials.
    """
    measured = {name for run in runs.values() for trial in run.finished.values() for name in trial.metrics}
    found = []
    for measure, initial, stack in (
        *((measure, False, stack) for stack in STACKS for measure in INSIDES),
        *((measure, True, stack) for stack in STACKS for measure in INITIAL),
    ):
        start = inside_name(measure, stack, initial=initial) + "_"
        blocks = sorted(int(name.removeprefix(start)) for name in measured if name.startswith(start))
        lines = []
        for variant in record.variants:
            run = runs[variant.name]
            values = {block: run.values(f"{start}{block}") for block in blocks}
            points = tuple(
                SlicePoint(float(block), variant.name, mean_interval(by_seed.values()), None, len(run.diverged))
                for block, by_seed in values.items()
                if _has_mean(by_seed)
            )
            lines += [SliceLine(variant.name, points)] if points else []
        if len(blocks) > 1:
            metric = inside_name(measure, initial=initial)
            found.append(Slice(stack, metric, None, logarithmic=False, lines=tuple(lines)))
    return tuple(found)


def _trained_length(variant: VariantRecord, field: str) -> float | None:
    """The value of the field of the task that sets its length; None if the kind of the task is not known here."""
    try:
        return float(getattr(TaskSpec.parse(variant.spec["task"]), field))
    except (ValidationError, AttributeError):
        return None


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
        at = axis_value(variant, axis)
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
    name, along = split_axis(variant.name)
    rest = [value for value in along.split(",") if value and not value.startswith(f"{axis}=")]
    if axis in record.space.get("switches", {}):
        changed = [part for part in name.split(",") if not part.startswith(f"{axis}=")]
        name = ",".join(changed) or record.baseline
    return f"{name}@{','.join(rest)}" if rest else name

"""What varies in a study: its switches, the numeric axes along which it was swept or searched, and every other path.

The parameters of a study's trials are whatever differs between its variants, as exports name it. A switch is a
parameter with its settings as values. So is every spec path that a design sweeps, searches or lengthens, that `tune` or
`tuned` chooses, that `match` solves, or that a stage trains otherwise; every variant has its value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.spec.fairness import STEPS, MatchSpec
from ablate.spec.paths import full_path, value_at
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


def place(variant: VariantRecord, axis: str) -> float | None:
    """The value of a variant on a numeric axis, from its settings or else from its spec; None if there is no number."""
    try:
        number = float(variant.settings.get(axis, _of_spec(variant, axis)))
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def is_logarithmic(values: tuple[float, ...]) -> bool:
    """Whether ascending values are better seen on a logarithmic scale: above 0, and over a range of 8 or more."""
    return values[0] > 0 and values[-1] >= 8 * values[0]


def crosses(variants: Sequence[VariantRecord], switches: Mapping[str, tuple[str, ...]], axes: Sequence[str]) -> bool:
    """Whether every setting of the switches occurs with at least two combinations of everything else that varies.

    A grid, a fraction of one and a search cross their switches; turning one switch at a time does not.
    """
    beside: dict[tuple[str, str], set[tuple[object, ...]]] = {}
    for variant in variants:
        for switch in switches:
            others = tuple(variant.settings[other] for other in switches if other != switch)
            along = tuple(place(variant, axis) for axis in axes)
            beside.setdefault((switch, variant.settings[switch]), set()).add((*others, *along))
    return all(len(combinations) > 1 for combinations in beside.values())


def _of_spec(variant: VariantRecord, path: str) -> Any:
    value: Any = variant.spec
    for key in full_path(path).split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _axis(record: StudyRecord, name: str) -> tuple[float, ...]:
    places = [place(variant, name) for variant in record.variants]
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

"""What varies in a study: its switches, and the numeric axes along which it was swept or searched."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.spec.paths import full_path
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

"""The parameters of a study's trials: whatever differs between its variants, as exports name it.

A switch is a parameter with its settings as values. So is every spec path that a design sweeps, searches or lengthens,
that `tune` or `tuned` chooses, that `match` solves, or that a stage trains otherwise; every variant has its value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ablate.spec.fairness import STEPS, MatchSpec
from ablate.spec.paths import full_path, value_at
from ablate.store.records import StudyRecord, VariantRecord


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

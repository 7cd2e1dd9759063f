"""`ablate validate`: what is known of a valid space without its data and without its plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ablate.analysis.text import listed, plural
from ablate.planning.points import CheckedPoints
from ablate.spec.design import SeedsSpec
from ablate.spec.space import SpaceSpec
from ablate.trained.transfer import Transfer


def starts(made: Mapping[str, Transfer]) -> Iterable[str]:
    """What variants take from trained weights, a line for all that take the same."""
    names: dict[str, list[str]] = {}
    for name, one in made.items():
        names.setdefault(one.sentence(), []).append(name)
    for sentence, alike in names.items():
        yield f"{listed(alike)}: {sentence}."


def start_json(made: Transfer) -> dict[str, Any]:
    """What a variant takes from trained weights as plain data."""
    return {"source": made.where, "copied": made.copied, "new": made.new, "unused": made.unused}


def validate_json(space: SpaceSpec, seen: CheckedPoints) -> dict[str, Any]:
    """What is known as plain data."""
    return {
        "space": space.name,
        "valid": True,
        "points": seen.points,
        "further": seen.further,
        "invalid": [{"name": name, "reason": reason} for name, reason in seen.reasons.items()],
        "same_as": dict(seen.same_as),
        "without_effect": list(seen.without_effect),
        "doubts": list(seen.doubts),
        "starts": {name: start_json(made) for name, made in seen.starts.items()},
        "missing": seen.missing,
    }


def lines(file: str, space: SpaceSpec, seen: CheckedPoints) -> Iterable[str]:
    """What is known, a line each."""
    points = plural(seen.points, "point") + (f" {seen.further}" if seen.further else "")
    yield f"{file} is a valid space: {points}, each with {_seeds(space.design.seeds)}{_fair(space)}."
    yield from left_out(seen.reasons.values())
    yield from seen.without_effect
    yield from starts(seen.starts)
    yield from seen.doubts
    if seen.missing:
        yield f"Its data is missing: {seen.missing}"


def left_out(reasons: Iterable[str]) -> Iterable[str]:
    """How many points make no model, and why, the most frequent reason first."""
    counts = Counter(reasons)
    if counts:
        made = "makes" if counts.total() == 1 else "make"
        yield f"{plural(counts.total(), 'point')} left out that {made} no model:"
        yield from (f"  {times} x {reason}" for reason, times in counts.most_common())


def _seeds(seeds: int | SeedsSpec) -> str:
    return plural(seeds, "seed") if isinstance(seeds, int) else f"{seeds.start} to {seeds.max} seeds"


def _fair(space: SpaceSpec) -> str:
    tuned = "" if space.tune is None else f", tuned over {len(list(space.tune.combinations()))} values first"
    return f"{tuned}{'' if space.match.path is None else f', at equal {space.match.equal}'}"

"""`ablate validate`: what is known of a valid space without its data and without its plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from ablate.analysis.text import listed, plural
from ablate.designs.base import Design, Point
from ablate.nn.model.build import model_cost
from ablate.planning.starting import Starting
from ablate.spec.design import SeedsSpec
from ablate.spec.lookup import FoundModel
from ablate.spec.space import SpaceSpec
from ablate.spec.variant import VariantSpec
from ablate.trained.transfer import Transfer

MOST_LOOKED_AT = 2_000
"""Points that are made into variants; to look at all of a large grid takes as long as its plan."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The points of a design, checked one by one.

    Attributes:
        points: How many are known before results.
        further: Those that follow, in words; empty if none do.
        reasons: Name of a point that makes no model to the reason.
        same_as: Name of a point to that of the point before it whose variant it is too.
        variants: How many different variants the points that were looked at make.
        missing: What its data lacks; None if nothing is known to be missing.
        doubts: Warnings about settings that are probably unintended.
        starts: Name of a point that starts from a source of weights to what it takes from it.
    """

    points: int
    further: str
    missing: str | None
    doubts: tuple[str, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)
    same_as: Mapping[str, str] = field(default_factory=dict)
    variants: int = 0
    starts: Mapping[str, Transfer] = field(default_factory=dict)

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The sentences of `without_effect` about these points; only a limited number of points is checked."""
        return tuple(without_effect(self.same_as, self.variants if self.points <= MOST_LOOKED_AT else None))


def look_at(space: SpaceSpec, design: Design, starting: Starting | None = None) -> Seen:
    """Look at the points of a space's design, at the first `MOST_LOOKED_AT` of them one by one.

    Args:
        space: The space.
        design: Its design.
        starting: Reads the weights that variants start from; None: they are not looked at.

    Raises:
        AblateError: Weights from which a variant starts are missing or cannot be read.
    """
    points = design.points()
    reasons, names, same_as = dict[str, str](), dict[str, str](), dict[str, str]()
    begun: dict[str, Transfer] = {}
    for point in points[:MOST_LOOKED_AT]:
        spec = _spec_or_reason(space, point, reasons)
        if spec is None:
            continue
        if starting is not None and (made := starting.foreseen(spec)) is not None:
            begun[point.name] = made
        digest = spec.content_hash()
        if names.setdefault(digest, point.name) != point.name:
            same_as[point.name] = names[digest]
    missing, doubted = space.task.missing(), tuple(space.warnings())
    return Seen(len(points), design.further(), missing, doubted, reasons, same_as, len(names), begun)


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


def _spec_or_reason(space: SpaceSpec, point: Point, reasons: dict[str, str]) -> VariantSpec | None:
    """The spec of a point's variant; None, and a line in `reasons`, if it makes no model."""
    try:
        return space.composer.compose(point.settings, {**point.values, **point.tuned})
    except ValidationError as error:
        reasons[point.name] = space.composer.reason(point.settings, error)
        return None


def validate_json(space: SpaceSpec, seen: Seen) -> dict[str, Any]:
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


def lines(file: str, space: SpaceSpec, seen: Seen) -> Iterable[str]:
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


def without_effect(same_as: Mapping[str, str], variants: int | None) -> Iterable[str]:
    """The points that change nothing, because they are the same variant as another. All commands and pages say it so.

    Args:
        same_as: Name of a point to that of the point before it whose variant it is too.
        variants: How many different variants all points make; None if that is not known.
    """
    if same_as and variants == 1:
        yield (
            "Warning: there is nothing to compare. Every point that makes a model is the same variant as "
            f"{next(iter(same_as.values()))}: no switch changes anything. See that the settings after the first set "
            "other values than `model`, `task` and `training` do."
        )
    yield from (f"{name} is the same variant as {same} and is trained once." for name, same in same_as.items())


def _seeds(seeds: int | SeedsSpec) -> str:
    return plural(seeds, "seed") if isinstance(seeds, int) else f"{seeds.start} to {seeds.max} seeds"


def _fair(space: SpaceSpec) -> str:
    tuned = "" if space.tune is None else f", tuned over {len(list(space.tune.combinations()))} values first"
    return f"{tuned}{'' if space.match.path is None else f', at equal {space.match.equal}'}"


def model_json(model: FoundModel) -> dict[str, Any]:
    """What is known of a named model, as plain data."""
    spec, named = model.spec, model.named
    cost = model_cost(spec, vocabulary=named.vocabulary, context=named.context, length=1)
    return {
        "model": model.name,
        "description": named.description,
        "source": named.source,
        "family": spec.family,
        "depth": spec.depth,
        "width": spec.width,
        "vocabulary": named.vocabulary,
        "context": named.context,
        "parameters": cost.parameters,
        "published_parameters": named.parameters,
    }


def model_line(model: FoundModel) -> str:
    """What is known of a named model, in one line."""
    facts = model_json(model)
    published = facts["published_parameters"]
    also = (
        ""
        if published is None
        else ", as published"
        if published == facts["parameters"]
        else f", {published:,} published"
    )
    return (
        f"{model.name} is a valid model: {facts['family']}, {plural(facts['depth'], 'layer')} of width "
        f"{facts['width']}, {facts['parameters']:,} parameters{also}. {model.named.description}."
    )

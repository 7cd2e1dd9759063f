"""What a file in this folder (or a plugin) needs to define a design, the names of points among it."""

from __future__ import annotations

from collections.abc import Mapping

from ablate.spec.design import BASELINE, Design, DesignContext, DesignSpec, Point, PointCost, Proposal

__all__ = [
    "BASELINE",
    "Design",
    "DesignContext",
    "DesignSpec",
    "Point",
    "PointCost",
    "Proposal",
    "named_points",
    "setting_name",
    "settings_key",
]


def setting_name(settings: Mapping[str, str], baseline: Mapping[str, str]) -> str:
    """Name of a point by what differs from the baseline: `switch=setting`, joined by commas."""
    changed = [f"{switch}={setting}" for switch, setting in settings.items() if setting != baseline[switch]]
    return ",".join(changed) or BASELINE


def settings_key(point: Point) -> tuple[tuple[str, object], ...]:
    """What makes two points the same corner, whatever they are called."""
    return (*sorted(point.settings.items()), *sorted(point.values.items()))


def named_points(context: DesignContext) -> list[Point]:
    """The baseline and the named variants of a space."""
    points = [Point(BASELINE, context.baseline)]
    return points + [Point(name, {**context.baseline, **settings}) for name, settings in context.variants.items()]

"""What a file in this folder, or a plugin, imports to define a design, and functions for naming points."""

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
    """Name of a point: its differences from the baseline as `switch=setting`, joined by commas."""
    changed = [f"{switch}={setting}" for switch, setting in settings.items() if setting != baseline[switch]]
    return ",".join(changed) or BASELINE


def settings_key(point: Point) -> tuple[tuple[str, object], ...]:
    """A key that is equal for points with equal settings and values, regardless of their names."""
    return (*sorted(point.settings.items()), *sorted(point.values.items()))


def named_points(context: DesignContext) -> list[Point]:
    """The baseline and the named variants of a space."""
    points = [Point(BASELINE, context.baseline)]
    return points + [Point(name, {**context.baseline, **settings}) for name, settings in context.variants.items()]

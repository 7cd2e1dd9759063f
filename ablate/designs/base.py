"""What a file in this folder (or a plugin) needs to define a design, the names of points among it."""

from __future__ import annotations

from collections.abc import Mapping

from ablate.spec.design import BASELINE, Design, DesignSpec, Point, Proposal

__all__ = ["BASELINE", "Design", "DesignSpec", "Point", "Proposal", "setting_name"]


def setting_name(settings: Mapping[str, str], baseline: Mapping[str, str]) -> str:
    """Name of a point by what differs from the baseline: `switch=setting`, joined by commas."""
    changed = [f"{switch}={setting}" for switch, setting in settings.items() if setting != baseline[switch]]
    return ",".join(changed) or BASELINE

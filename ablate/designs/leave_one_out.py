"""Leave one out: the baseline, and each switch turned on its own; named variants join in."""

from __future__ import annotations

from typing import Literal

from ablate.designs.base import Design, DesignContext, DesignSpec, Point, named_points, setting_name
from ablate.designs.seeding import over_seeds


class LeaveOneOutSpec(DesignSpec):
    """The baseline and every single setting that differs from it, then the named variants."""

    kind: Literal["leave_one_out"] = "leave_one_out"

    def build(self, context: DesignContext) -> Design:
        baseline, *variants = named_points(context)
        points = [baseline]
        for switch, settings in context.switches.items():
            for setting in settings[1:]:
                turned = {**baseline.settings, switch: setting}
                points.append(Point(setting_name(turned, baseline.settings), turned))
        return over_seeds([*points, *variants], self.seeds, context)

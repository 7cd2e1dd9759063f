"""Leave one out: the baseline, each single changed switch, and the named variants."""

from __future__ import annotations

from typing import Literal

from ablate.designs.base import Design, DesignContext, DesignSpec, Point, named_points, over_seeds, setting_name


class LeaveOneOutSpec(DesignSpec):
    """The baseline, every variant that differs from it in one setting, and the named variants."""

    adds_seeds = True
    kind: Literal["leave_one_out"] = "leave_one_out"

    def build(self, context: DesignContext) -> Design:
        baseline, *variants = named_points(context)
        points = [baseline]
        for switch, settings in context.switches.items():
            for setting in settings[1:]:
                changed = {**baseline.settings, switch: setting}
                points.append(Point(setting_name(changed, baseline.settings), changed))
        return over_seeds([*points, *variants], self, context)

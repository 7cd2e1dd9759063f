"""Leave one out: the baseline, and each switch turned on its own; named variants join in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from ablate.designs.base import BASELINE, Point, setting_name
from ablate.designs.fixed import FixedDesign
from ablate.spec.design import DesignSpec


class LeaveOneOutSpec(DesignSpec):
    """The baseline and every single setting that differs from it, then the named variants."""

    kind: Literal["leave_one_out"] = "leave_one_out"

    def build(self, switches: Mapping[str, Sequence[str]], variants: Mapping[str, Mapping[str, str]]) -> FixedDesign:
        """See `DesignSpec.build`."""
        baseline = {switch: settings[0] for switch, settings in switches.items()}
        points = [Point(BASELINE, baseline)]
        for switch, settings in switches.items():
            for setting in settings[1:]:
                turned = {**baseline, switch: setting}
                points.append(Point(setting_name(turned, baseline), turned))
        points += [Point(name, {**baseline, **settings}) for name, settings in variants.items()]
        return FixedDesign(points, range(self.seeds))

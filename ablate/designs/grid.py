"""Grid: every valid combination of settings."""

from __future__ import annotations

import itertools
import math
from typing import Literal

from pydantic import Field

from ablate.designs.base import Design, DesignContext, DesignSpec, Point, over_seeds, setting_name
from ablate.errors import SpaceError


def combinations(context: DesignContext) -> list[Point]:
    """All combinations of settings, valid or not; the baseline first, the last switch varying fastest."""
    baseline = context.baseline
    corners = (dict(zip(baseline, chosen, strict=True)) for chosen in itertools.product(*context.switches.values()))
    return [Point(setting_name(settings, baseline), settings) for settings in corners]


class GridSpec(DesignSpec):
    """All valid combinations of the switches; invalid ones are left out and counted."""

    adds_seeds = True
    kind: Literal["grid"] = "grid"
    most: int = Field(default=10_000, ge=1, le=100_000)
    """Maximum number of combinations; larger grids are refused."""

    def build(self, context: DesignContext) -> Design:
        """As `DesignSpec.build`.

        Raises:
            SpaceError: There are more combinations than `most`.
        """
        count = math.prod(len(settings) for settings in context.switches.values())
        if count > self.most:
            raise SpaceError(
                f"the grid has {count:,} combinations",
                where=context.where("most"),
                expected=f"at most {self.most:,}",
                remedy="Choose `kind: fractional` or `kind: search`, leave switches out, or raise `most`.",
            )
        return over_seeds(combinations(context), self, context)

"""Population based training: members that exchange weights and values while they are trained (arXiv:1711.09846)."""

from __future__ import annotations

import math
import random
from typing import Literal

from pydantic import Field

from ablate.designs.base import BASELINE, Design, DesignContext, DesignSpec, Point
from ablate.designs.fixed import FixedDesign
from ablate.errors import SpaceError
from ablate.spec.population import ExchangeSpec


class PopulationDesignSpec(DesignSpec, ExchangeSpec):
    """The baseline with its own values, and a population of baselines that find theirs while they are trained.

    Members pause and go on from checkpoints, which needs `--engine ray`; this machine alone is enough. They are
    compared by their validation loss. A member's curve is that of the weights that it ends with, and the store keeps
    with which values those were trained. The seeds are populations of their own.
    """

    kind: Literal["population"] = "population"
    draws: int = Field(default=0, ge=0)
    """Seed of the values that members begin with."""

    def paths(self) -> tuple[str, ...]:
        return (*self.ranges, "training.population")

    def build(self, context: DesignContext) -> Design:
        """See `DesignSpec.build`.

        Raises:
            SpaceError: No member makes a model.
        """
        numbers = random.Random(self.draws)
        exchange = {name: value for name, value in self.model_dump(mode="json").items() if name in _EXCHANGE}
        points = [Point(BASELINE, context.baseline)]
        for member in range(self.size):
            drawn = {
                path: self.clipped(path, math.exp(numbers.uniform(math.log(low), math.log(high))))
                for path, (low, high) in self.ranges.items()
            }
            population = {**exchange, "member": member, "draws": self.draws}
            points.append(Point(f"member {member}", context.baseline, {**drawn, "training.population": population}))
        reasons = [context.refusal(point) for point in points[1:]]
        if all(reason is not None for reason in reasons):
            raise SpaceError(
                f"no member of the population makes a model; the first reason: {reasons[0]}",
                where=context.where("ranges"),
                remedy="Give paths that exist and values that fit them.",
            )
        return FixedDesign(points, range(self.fixed_seeds()), context.refusal)


_EXCHANGE = frozenset(ExchangeSpec.model_fields)

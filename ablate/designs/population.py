"""Population based training: members copy weights and perturb values during training (arXiv:1711.09846)."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from ablate.designs.base import BASELINE, Design, DesignContext, DesignSpec, FixedDesign, Point
from ablate.errors import SpaceError
from ablate.spec.training import ExchangeSpec


class PopulationDesignSpec(DesignSpec, ExchangeSpec):
    """The baseline with fixed values, and a population of baselines whose values are tuned during training.

    Members pause and resume from checkpoints, which needs `--engine ray`, on one machine or more. They are ranked by
    validation loss. The curve of a member follows the history of its final weights, and the store records the values
    with which these were trained. Each seed is a separate population.
    """

    kind: Literal["population"] = "population"
    plans_points = False
    example: ClassVar[Mapping[str, Any]] = {"every": 9, "ranges": {"training.optimizer.lr": [1e-4, 1e-2]}}
    draws: int = Field(default=0, ge=0)
    """Random seed of the initial values of the members."""

    def paths(self) -> tuple[str, ...]:
        return (*self.ranges, "training.population")

    def build(self, context: DesignContext) -> Design:
        """As `DesignSpec.build`.

        Raises:
            SpaceError: No member makes a model.
        """
        numbers = random.Random(self.draws)
        exchange = {name: value for name, value in self.model_dump(mode="json").items() if name in _EXCHANGE}
        points = [Point(BASELINE, context.baseline)]
        for member in range(self.size):
            drawn = {
                path: self.clip(path, math.exp(numbers.uniform(math.log(low), math.log(high))))
                for path, (low, high) in self.ranges.items()
            }
            population = {**exchange, "member": member, "draws": self.draws}
            points.append(Point(f"member {member}", context.baseline, {**drawn, "training.population": population}))
        reasons = [context.refusal(point) for point in points[1:]]
        if all(reason is not None for reason in reasons):
            raise SpaceError(
                f"no member of the population makes a model; the first reason: {reasons[0]}",
                where=context.where("ranges"),
                remedy="Give existing paths and valid values.",
            )
        return FixedDesign(points, range(self.fixed_seeds()), context.refusal)


_EXCHANGE = frozenset(ExchangeSpec.model_fields)

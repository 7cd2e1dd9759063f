"""Several variants or trials side by side: differences of specs and environments, and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.analysis.diff import Side, stored_side
from ablate.analysis.differences import merged
from ablate.spec.paths import leaves
from ablate.stats import Interval, PairedDifference, mean_interval, paired_difference
from ablate.store import Store


@dataclass(frozen=True, slots=True)
class Field:
    """A dotted path whose value is not the same on all sides.

    Attributes:
        path: Where.
        values: One for each side; None where a side has no such path.
    """

    path: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Sides, in the order in which they were named."""

    sides: tuple[Side, ...]

    @property
    def spec(self) -> tuple[Field, ...]:
        """Where the specs of the variants differ."""
        return fields([side.spec for side in self.sides])

    @property
    def environment(self) -> tuple[Field, ...]:
        """Where the places differ in which the trials ran, whatever command ran them."""
        places = [[trial.environment for trial in side.trials.values() if trial.environment] for side in self.sides]
        return fields([merged(place) for place in places])

    def interval(self, side: Side, metric: str) -> Interval:
        """Mean of a metric over the finished trials of a side."""
        return mean_interval(side.measures().get(metric, {}).values())

    def difference(self, side: Side, metric: str) -> PairedDifference:
        """A side minus the first one, paired over the seeds that both have."""
        return paired_difference(side.measures().get(metric, {}), self.sides[0].measures().get(metric, {}))

    @property
    def metrics(self) -> tuple[str, ...]:
        """What has been measured on any side."""
        return tuple(dict.fromkeys(metric for side in self.sides for metric in side.measures()))


def read_comparison(store: Store, names: Sequence[str]) -> Comparison:
    """Read sides, each `STUDY/VARIANT` or the beginning of a trial's key.

    Raises:
        NotFoundError: The store holds nothing of that name, or more than one; the message names the nearest.
    """
    return Comparison(tuple(stored_side(name, store) for name in names))


def fields(sides: Sequence[Mapping[str, Any]]) -> tuple[Field, ...]:
    """Where nested mappings differ, in the order of the first, then of the second, and so on."""
    flat = [leaves(side) for side in sides]
    differing = []
    for path in dict.fromkeys(path for side in flat for path in side):
        values = tuple(side.get(path) for side in flat)
        if any(path not in side for side in flat) or any(value != values[0] for value in values[1:]):
            differing.append(Field(path, values))
    return tuple(differing)

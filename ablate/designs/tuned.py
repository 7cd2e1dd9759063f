"""Wraps a design to tune every point: it is trained with the best values of a small grid."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import JsonValue

from ablate.designs.base import Design, Point, Proposal
from ablate.designs.scouting import ScoutingDesign
from ablate.roles import TUNING_SEEDS, TrialRole
from ablate.spec.fairness import TuneSpec

_ONE_SEED = ("One tuning seed does not show its noise: no bound holds, and every comparison stays undecided. Use two.",)


def tuning_rank(results: Iterable[float | None], direction: Literal["minimize", "maximize"]) -> tuple[int, float]:
    """Rank of a combination of values by the results of its trials (None: diverged or failed); lower is better.

    Fewer lost seeds come before a better mean, because the mean over the remaining seeds would be biased.
    """
    values = list(results)
    finished = [value for value in values if value is not None]
    mean = statistics.fmean(finished) if finished else 0.0
    return len(values) - len(finished), mean if direction == "minimize" else -mean


class TunedDesign(ScoutingDesign):
    """Trains every point of another design with each combination of a grid, and proposes it with the best one.

    Every point gets the same trials: all combinations with the same seeds.

    Args:
        inner: The design whose points are tuned.
        tune: The grid and the number of seeds.
        direction: Whether a smaller or a larger objective is better.
    """

    def __init__(self, inner: Design, tune: TuneSpec, direction: Literal["minimize", "maximize"]) -> None:
        super().__init__(inner)
        self._grid = list(tune.combinations())
        self._seeds = range(TUNING_SEEDS, TUNING_SEEDS + tune.seeds)
        self._tune = tune
        self._direction = direction

    def remarks(self) -> Sequence[str]:
        paths = " and ".join(f"{path} ({', '.join(map(str, values))})" for path, values in self._tune.grid.items())
        trials = len(self._grid) * len(self._seeds)
        return (
            *self._inner.remarks(),
            f"Tunes {paths}: {trials} trials for each variant, with seeds from {TUNING_SEEDS} on, not compared.",
            *(_ONE_SEED if len(self._seeds) == 1 else ()),
        )

    def _scouts(self, points: Iterable[Point]) -> list[Proposal]:
        tried = [self._tried(point, values) for point in points for values in self._grid]
        return [Proposal(point, seed) for seed in self._seeds for point in tried]

    def _informed(self, point: Point) -> Point:
        # `min` returns the first of equal combinations.
        best = min(self._grid, key=functools.partial(self._rank, point))
        return replace(point, tuned={**point.tuned, **best})

    def _rank(self, point: Point, values: Mapping[str, JsonValue]) -> tuple[int, float]:
        return tuning_rank(self._results[self._tried(point, values).name].values(), self._direction)

    @staticmethod
    def _tried(point: Point, values: Mapping[str, JsonValue]) -> Point:
        written = ", ".join(f"{path}={value}" for path, value in values.items())
        return replace(point, name=f"{point.name} ({written})", tuned={**point.tuned, **values}, role=TrialRole.TUNING)

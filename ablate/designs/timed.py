"""Timing as a design round another: a short trial of every point says how long a step of it takes on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pydantic import JsonValue

from ablate.designs.base import Design, Point, Proposal
from ablate.designs.scouting import ScoutingDesign
from ablate.roles import TIMING_SEEDS, TrialRole

TIMING_STEPS = 40
"""Steps of a timing trial; the first half warms up and is not counted."""

_TRAINED = {"training.steps": TIMING_STEPS, "training.evaluations": 2}
_NO_MATTER = ("training.optimizer.lr", "training.optimizer.weight_decay", "training.schedule")
"""Paths that do not change how long a step takes."""


def timing_point(point: Point, written: Mapping[str, JsonValue]) -> Point:
    """The trial that times the steps of a point.

    Args:
        point: A point.
        written: Values of tuned paths that do not matter here, as the space has them: one timing serves all of them.
    """
    tuned = {path: written.get(path, value) for path, value in point.tuned.items()}
    name = point.name.partition(" (")[0]
    kept = ", ".join(f"{path}={value}" for path, value in tuned.items() if path not in written)
    name = f"{name} ({f'{kept}, ' if kept else ''}timing)"
    return replace(point, name=name, tuned=tuned | _TRAINED, role=TrialRole.TIMING)


def no_matter(path: str) -> bool:
    """Whether a full path has nothing to do with how long a step takes."""
    return any(f"{path}.".startswith(f"{other}.") for other in _NO_MATTER)


class TimedDesign(ScoutingDesign):
    """Times every point of another design, and the baseline that they are matched with, before it is proposed.

    Args:
        inner: The design whose points are timed.
        baseline: As the space writes it.
        written: See `timing_point`.
    """

    def __init__(self, inner: Design, baseline: Point, written: Mapping[str, JsonValue]) -> None:
        super().__init__(inner)
        self._baseline = baseline
        self._written = written

    def _scouts(self, points: Iterable[Point]) -> list[Proposal]:
        timed = {one.name: one for one in (timing_point(point, self._written) for point in (self._baseline, *points))}
        return [Proposal(point, seed) for seed in TIMING_SEEDS for point in timed.values()]

    def _uninformed(self, point: Point) -> Point:
        return point

"""Wraps a design to time every point: a short trial measures the duration of a step on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pydantic import JsonValue

from ablate.designs.base import Design, Point, Proposal
from ablate.designs.scouting import ScoutingDesign
from ablate.roles import TIMING_SEEDS, TrialRole

TIMING_STEPS = 40
"""Number of steps of a timing trial; the first half is a warm-up and is not measured."""

_SCHEDULE = "training.schedule"
_TRAINED: dict[str, JsonValue] = {
    "training.steps": TIMING_STEPS,
    "training.evaluations": 2,
    _SCHEDULE: {"kind": "constant"},  # others may need more steps
}
_IRRELEVANT_PATHS = ("training.optimizer.lr", "training.optimizer.weight_decay", _SCHEDULE)
"""Paths that do not affect the duration of a step."""


def timing_point(point: Point, written: Mapping[str, JsonValue]) -> Point:
    """The point of the trial that times the steps of another point.

    Args:
        point: The point to time.
        written: Values in the space of tuned paths that do not affect the duration, so that one timing serves all
            values.
    """
    tuned = {path: written.get(path, value) for path, value in point.tuned.items()}
    name = point.name.partition(" (")[0]
    kept = ", ".join(f"{path}={value}" for path, value in tuned.items() if path not in written)
    name = f"{name} ({f'{kept}, ' if kept else ''}timing)"
    kept_paths = {path: value for path, value in tuned.items() if not f"{path}.".startswith(f"{_SCHEDULE}.")}
    return replace(point, name=name, tuned=kept_paths | _TRAINED, role=TrialRole.TIMING)


def keeps_step_time(path: str) -> bool:
    """Whether a full path does not affect the duration of a step."""
    return any(f"{path}.".startswith(f"{other}.") for other in _IRRELEVANT_PATHS)


class TimedDesign(ScoutingDesign):
    """Times every point of another design and the baseline with which they are matched, before it is proposed.

    Args:
        inner: The design whose points are timed.
        baseline: The baseline as in the space file.
        written: See `timing_point`.
    """

    def __init__(self, inner: Design, baseline: Point, written: Mapping[str, JsonValue]) -> None:
        super().__init__(inner)
        self._baseline = baseline
        self._written = written

    def _scouts(self, points: Iterable[Point]) -> list[Proposal]:
        timing = [timing_point(point, self._written) for point in (self._baseline, *points)]
        distinct = {point.name: point for point in timing}
        return [Proposal(point, seed) for seed in TIMING_SEEDS for point in distinct.values()]

    def _uninformed(self, point: Point) -> Point:
        return point

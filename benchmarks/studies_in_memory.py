"""Studies of known truth, held in memory: a design proposes trials, and known losses with noise are their results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from ablate.analysis.runs import FinalResults
from ablate.roles import TrialRole
from ablate.spec.design import DesignContext, DesignSpec, PointCost
from ablate.stats import Direction
from ablate.store.records import (
    CurvePoint,
    DesignTraits,
    PlannedTrial,
    SpeedTiming,
    StudyRecord,
    TrialRecord,
    TrialState,
    VariantRecord,
)

MARGIN, SD = 0.05, 0.02
"""Of the simulated comparisons: nats, as a small language model shows them."""
DIRECTION: Direction = "minimize"
_NOON = datetime(2024, 5, 17, 12, 0, tzinfo=UTC)


class MemoryStore(FinalResults):
    """The trials of one study, as reports read them."""

    record: StudyRecord

    def __init__(self) -> None:
        self._trials: dict[str, TrialRecord] = {}
        self.curve_points: dict[str, tuple[CurvePoint, ...]] = {}
        self.timed: dict[str, tuple[SpeedTiming, ...]] = {}

    def add(self, planned: PlannedTrial, value: float | TrialState) -> None:
        """A trial that finished with a loss, or ended in another state."""
        state = value if isinstance(value, TrialState) else TrialState.FINISHED
        metrics = {} if isinstance(value, TrialState) else {"val_loss": value}
        self._trials[planned.key] = TrialRecord(
            key=planned.key, variant_hash=planned.variant, seed=planned.seed, state=state, metrics=metrics, steps=1,
            seconds=1.0, tokens=1, flops=1.0, stopped_at=None, reason="", data_fingerprint="", started_at=None,
            finished_at=None, environment=None,
        )  # fmt: skip

    def study(self, name: str) -> StudyRecord:
        """The study."""
        return self.record

    def evaluations(self, keys: Sequence[str]) -> dict[str, tuple[CurvePoint, ...]]:
        """The curves that were given."""
        return {key: self.curve_points[key] for key in keys if key in self.curve_points}

    def timings(self, keys: Sequence[str]) -> dict[str, tuple[SpeedTiming, ...]]:
        """The timings that were given."""
        return {key: self.timed[key] for key in keys if key in self.timed}


def study_in_memory(
    spec: DesignSpec, switches: int, truth: Callable[[Mapping[str, str]], float], rng: np.random.Generator
) -> MemoryStore:
    """Run a design until it has no further proposals.

    Args:
        spec: The design.
        switches: The number of switches, each with the settings `on` and `off`.
        truth: The expected change of the loss by the settings of a point.
        rng: Draws the effects of seeds, and the noise.
    """
    named = {f"s{number}": ("on", "off") for number in range(switches)}
    cost = {name: float(2**number) for number, name in enumerate(named)}

    def parameters(settings: Mapping[str, str]) -> int:
        return 1000 + int(sum(cost[name] for name, setting in settings.items() if setting == "on"))

    context = DesignContext(
        switches=named,
        variants={},
        direction=DIRECTION,
        margin=MARGIN,
        refusal=lambda point: None,
        cost=lambda point: PointCost(parameters(point.settings), 1.0),
    )
    made = MemoryStore()
    design, shifts = spec.build(context), rng.normal(0, 0.05, 10_000)
    declared = {point.name for point in design.points()}
    planned: list[PlannedTrial] = []
    variants: dict[str, VariantRecord] = {}
    while proposals := design.ask():
        for point, seed in ((proposal.point, proposal.seed) for proposal in proposals):
            chosen, size = point.name not in declared, parameters(point.settings)
            variants.setdefault(
                point.name, VariantRecord(point.name, point.name, dict(point.settings), {}, size, chosen=chosen)
            )
            planned.append(PlannedTrial(f"{point.name}/{seed}", point.name, seed, point.role))
            # Half of the variance of a difference is the baseline's, which all comparisons share.
            value = 3.0 + truth(point.settings) + shifts[seed] + float(rng.normal(0, SD / math.sqrt(2)))
            made.add(planned[-1], value)
            design.tell(point, seed, value)
    space = {
        "switches": {name: {one: {} for one in settings} for name, settings in named.items()},
        "design": spec.model_dump(mode="json"),
    }
    traits = DesignTraits(chooses=spec.chooses, adds_seeds=spec.adds_seeds, finds_best=spec.finds_best)
    made.record = _record(space, tuple(variants.values()), planned, traits)
    return made


def study_of(
    results: Mapping[str, Sequence[float | TrialState]],
    trivial: float | None = None,
    seeds: int | Mapping[str, int] | None = None,
) -> MemoryStore:
    """A study of these losses, or states of trials that have none, by variant and seed; `baseline` among them.

    Args:
        results: Variant to its trials in the order of seeds.
        trivial: The loss without learning; None if the task has no trivial baseline.
        seeds: As the space declares them, if a schedule adds some.
    """
    made, planned = MemoryStore(), []
    for name, values in results.items():
        for seed, value in enumerate(values):
            planned.append(PlannedTrial(f"{name}/{seed}", name, seed, TrialRole.COMPARISON))
            made.add(planned[-1], value)
    variants = tuple(VariantRecord(name, name, {}, {}, 1000) for name in results)
    design = {"design": {"seeds": seeds}} if seeds is not None else {}
    made.record = _record(
        design, variants, planned, trivial={} if trivial is None else {"trivial": {"val_loss": trivial}}
    )
    return made


def _record(
    space: dict[str, Any],
    variants: tuple[VariantRecord, ...],
    planned: Sequence[PlannedTrial],
    traits: DesignTraits | None = None,
    trivial: dict[str, dict[str, float]] | None = None,
) -> StudyRecord:
    return StudyRecord(
        id=1,
        name="study",
        question="",
        source="",
        space=space,
        text="",
        objective={"metric": "val_loss", "direction": DIRECTION, "margin": MARGIN},
        baseline="baseline",
        traits=traits or DesignTraits(),
        created_at=_NOON,
        updated_at=_NOON,
        variants=variants,
        planned=tuple(one for one in planned if one.role is TrialRole.COMPARISON),
        confirm_trials=tuple(one for one in planned if one.role is TrialRole.CONFIRMATION),
        trivial=trivial or {},
    )

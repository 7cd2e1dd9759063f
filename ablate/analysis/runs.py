"""The trials of a study, variant by variant and seed by seed, as reports look at them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ablate.stats import SeedPlan, seeds_declared
from ablate.store.records import CurvePoint, StudyRecord, TrialRecord, TrialState

Curve = Sequence[CurvePoint]


class StudyReader(Protocol):
    """What a report asks of a store."""

    def study(self, name: str) -> StudyRecord:
        """The study of this name.

        Raises:
            NotFoundError: There is none.
        """

    def trials(self, keys: Sequence[str]) -> dict[str, TrialRecord]:
        """The trials that exist, by key."""

    def curves(self, keys: Sequence[str]) -> dict[str, tuple[CurvePoint, ...]]:
        """The curves of the trials that exist, by key, in the order of their steps."""

    def evaluations(self, keys: Sequence[str]) -> dict[str, tuple[CurvePoint, ...]]:
        """The points with a finite validation loss of the trials that have some, by key, by step."""


@dataclass(frozen=True, slots=True)
class VariantRuns:
    """The trials of one variant by seed, and what is read off them.

    Attributes:
        states: Planned seed to the state of its trial.
        finished: Trials that finished with a finite objective.
        diverged: Trials that diverged, or finished with an objective that is no number.
        pruned: Trials that their design ended early: no results.
        failed: Trials that ended in an error: no results either.
    """

    states: dict[int, TrialState]
    finished: dict[int, TrialRecord]
    diverged: dict[int, TrialRecord]
    pruned: dict[int, TrialRecord]
    failed: dict[int, TrialRecord] = field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        """Whether no trial of it waits or runs."""
        return not {TrialState.WAITING, TrialState.RUNNING} & set(self.states.values())

    def values(self, metric: str) -> dict[int, float]:
        """Seed to final metric of the finished trials that have it."""
        return {seed: trial.metrics[metric] for seed, trial in self.finished.items() if metric in trial.metrics}


def read_runs(store: StudyReader, record: StudyRecord, metric: str) -> dict[str, VariantRuns]:
    """Variant name to its trials; `metric` is the objective's. Curves are left where they are."""
    keys = [planned.key for planned in record.planned]
    trials = store.trials(keys)
    runs = {variant.name: VariantRuns({}, {}, {}, {}) for variant in record.variants}
    for planned in record.planned:
        run, trial = runs[planned.variant], trials.get(planned.key)
        state = TrialState.WAITING if trial is None else trial.state
        # A trial may have ended in time with a loss that is no number: that is no result either.
        if trial is not None and state is TrialState.FINISHED and not math.isfinite(trial.metrics.get(metric, 0.0)):
            state = TrialState.DIVERGED
        run.states[planned.seed] = state
        if trial is not None and state is TrialState.FINISHED:
            run.finished[planned.seed] = trial
        if trial is not None and state is TrialState.DIVERGED:
            run.diverged[planned.seed] = trial
        if trial is not None and state is TrialState.PRUNED:
            run.pruned[planned.seed] = trial
        if trial is not None and state is TrialState.FAILED:
            run.failed[planned.seed] = trial
    return runs


def seed_schedule(record: StudyRecord) -> SeedPlan | None:
    """How a study adds seeds; None if their number is fixed and was so from its first results on."""
    now = record.space.get("design", {}).get("seeds")
    return seeds_declared([*(before.seeds for before in record.declared_before), now])

"""What a driver writes to the store and reads back from it, in the words of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ablate.engine.plan import Plan, Trial, Variant
from ablate.store import Store
from ablate.store.records import (
    CurvePoint,
    Environment,
    PlannedTrial,
    StudyDraft,
    TrialOutcome,
    TrialRecord,
    TrialState,
    VariantRecord,
)

SETTLED = (TrialState.FINISHED, TrialState.DIVERGED)
"""States of a trial that is not trained again."""


class Ledger:
    """The rows of one study and of its trials.

    Args:
        store: Where they are.
        study: Name of the study.
        environment: Where its trials run.
    """

    def __init__(self, store: Store, study: str, environment: Environment) -> None:
        self._store = store
        self._study = study
        self._environment = environment

    @property
    def where(self) -> str:
        """The store, as a path or URL."""
        return self._store.where

    def begin(self, plan: Plan, trivial: Mapping[str, Mapping[str, float]]) -> int:
        """Write the study and its plan, and clear what a dead driver left.

        Args:
            plan: What the design asks for at first.
            trivial: What is reached without learning, by name.

        Returns:
            How many of its trials are settled that this study has not planned before: other studies trained them.
        """
        names = {study.name for study in self._store.studies()}
        before = self._store.study(self._study).planned if self._study in names else ()
        self._store.begin_study(
            _draft(plan, trivial),
            [_variant(variant) for variant in plan.variants],
            [_planned(trial) for trial in plan.trials],
        )
        self._store.forget_unfinished([trial.key for trial in plan.trials])
        return len(self.settled(plan.trials).keys() - {planned.key for planned in before})

    def extend(self, trials: Iterable[Trial]) -> None:
        """Write trials that the design has thought of since the study began."""
        added = list(trials)
        if added:
            self._store.add_variants(self._study, [_variant(trial.variant) for trial in added])
            self._store.plan_trials(self._study, [_planned(trial) for trial in added])
            self._store.forget_unfinished([trial.key for trial in added])

    def settled(self, trials: Iterable[Trial]) -> dict[str, TrialRecord]:
        """Those of the trials that need no training, by key, whoever trained them."""
        records = self._store.trials([trial.key for trial in trials])
        return {key: record for key, record in records.items() if record.state in SETTLED}

    def start(self, trial: Trial) -> bool:
        """Write that a trial is running; False, and nothing is written, if another study has settled it meanwhile."""
        return self._store.record_started(
            trial.key, trial.variant.hash, trial.seed, trial.variant.fingerprint, self._environment
        )

    def add_point(self, trial: Trial, point: CurvePoint) -> None:
        """Write a point of the curve of a running trial."""
        self._store.record_points(trial.key, [point])

    def end(self, outcome: TrialOutcome) -> None:
        """Write how a trial ended."""
        self._store.record_outcome(outcome, self._environment)

    def forget(self, trials: Iterable[Trial]) -> None:
        """Take back that these trials are running."""
        self._store.forget_unfinished([trial.key for trial in trials])


def _draft(plan: Plan, trivial: Mapping[str, Mapping[str, float]]) -> StudyDraft:
    space = plan.space
    return StudyDraft(
        name=space.name,
        question=space.question,
        source=space.source,
        space=space.with_names(plan.aliases).model_dump(mode="json"),
        text=space.text,
        objective=space.objective.model_dump(mode="json"),
        baseline=plan.variants[0].name,
        trivial={name: dict(metrics) for name, metrics in trivial.items()},
    )


def _variant(variant: Variant) -> VariantRecord:
    return VariantRecord(
        name=variant.name,
        hash=variant.hash,
        settings=dict(variant.settings),
        spec=variant.spec.model_dump(mode="json"),
        parameters=variant.cost.parameters,
    )


def _planned(trial: Trial) -> PlannedTrial:
    return PlannedTrial(trial.key, trial.variant.name, trial.seed)

"""What a driver writes to the store and reads back from it, in the words of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ablate.engine.plan import Plan, Trial, Variant
from ablate.store import Store
from ablate.store.leases import Lease
from ablate.store.records import (
    CurvePoint,
    Environment,
    PlannedTrial,
    StudyDraft,
    TrialOutcome,
    TrialRecord,
    TrialState,
    VariantRecord,
    WorkerRecord,
)

SETTLED = (TrialState.FINISHED, TrialState.DIVERGED)
"""States of a trial that is not trained again."""

_AT_ONCE = 10_000
"""Variants, or planned trials, that are written between two signs of life."""


class Ledger:
    """The rows of one study and of its trials.

    Attributes:
        replaced: How many trials a study of this name planned before, of which the new plan has none.

    Args:
        store: Where they are.
        lease: Of the study; the trials that it runs are held by it.
        environment: Of its driver; trials may run elsewhere.
    """

    def __init__(self, store: Store, lease: Lease, environment: Environment) -> None:
        self._store = store
        self._lease = lease
        self._study = lease.study
        self._driver = lease.token
        self._points: dict[str, list[CurvePoint]] = {}
        self._environment = environment
        self._planned_before: frozenset[str] = frozenset()
        self.replaced = 0

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
        known = self._store.study(self._study) if self._study in names else None
        before = (*known.planned, *known.scout_trials) if known is not None else ()
        self._planned_before = frozenset(planned.key for planned in before)
        self.replaced = 0 if self._planned_before & {trial.key for trial in plan.trials} else len(before)
        self._write(plan, trivial)
        self._store.forget_unfinished([trial.key for trial in plan.trials], self._driver)
        return len(self.settled(plan.trials).keys() - self._planned_before)

    def _write(self, plan: Plan, trivial: Mapping[str, Mapping[str, float]]) -> None:
        """Write the study and its plan; a very large one in parts, as it takes longer than a silent driver may."""
        variants, planned = (*plan.variants, *plan.scouts), plan.trials
        whole = len(variants) <= _AT_ONCE and len(planned) <= _AT_ONCE
        self._store.begin_study(
            _draft(plan, trivial),
            [_variant(variant) for variant in variants[:_AT_ONCE]],
            [_planned(trial) for trial in planned] if whole else [],
        )
        for start in range(_AT_ONCE, len(variants), _AT_ONCE):
            self._lease.renew()
            self._store.add_variants(self._study, [_variant(each) for each in variants[start : start + _AT_ONCE]])
        for start in () if whole else range(0, len(planned), _AT_ONCE):
            self._lease.renew()
            self._store.plan_trials(self._study, [_planned(each) for each in planned[start : start + _AT_ONCE]])
        self._lease.renew()

    def extend(self, trials: Iterable[Trial]) -> None:
        """Write trials that the design has thought of since the study began."""
        added = list(trials)
        if added:
            self._store.add_variants(self._study, [_variant(trial.variant) for trial in added])
            self._store.plan_trials(self._study, [_planned(trial) for trial in added])
            self._store.forget_unfinished([trial.key for trial in added], self._driver)

    def settled(self, trials: Iterable[Trial], *, pruned: bool = False) -> dict[str, TrialRecord]:
        """Those of the trials that need no training, by key, whoever trained them.

        Args:
            trials: Of the plan.
            pruned: Whether those count that this study has pruned in an earlier run.
        """
        records = self._store.trials([trial.key for trial in trials])
        return {
            key: record
            for key, record in records.items()
            if record.state in SETTLED or (pruned and record.state is TrialState.PRUNED and key in self._planned_before)
        }

    def curves(self, keys: Sequence[str]) -> dict[str, tuple[CurvePoint, ...]]:
        """The learning curves of trials, by key."""
        return self._store.curves(keys)

    def start(self, trial: Trial, attempts: int) -> bool:
        """Write that a trial is running.

        Returns:
            False, and nothing is written, if it is settled, or if the driver of another study runs it.
        """
        variant = trial.variant
        return self._store.record_started(
            trial.key, variant.hash, trial.seed, variant.fingerprint, self._environment, self._driver, attempts
        )

    def place(self, trial: Trial, worker: WorkerRecord | None, attempts: int) -> None:
        """Write where a running trial trains now, or that it is nowhere at present, and how often it was begun."""
        if worker is None:
            self._points.pop(trial.key, None)  # of an attempt that was lost
        self._store.record_worker(trial.key, worker, attempts, self._driver)

    def add_point(self, trial: Trial, point: CurvePoint) -> None:
        """Note a point of the curve of a running trial, for `write_points`."""
        self._points.setdefault(trial.key, []).append(point)

    def write_points(self) -> None:
        """Write the points of what still runs, all in one transaction: with 1,000 jobs each costs more than itself."""
        points, self._points = self._points, {}
        self._store.record_points(points, self._driver)

    def end(self, outcome: TrialOutcome, worker: WorkerRecord | None) -> None:
        """Write how a trial ended, with its whole curve, and where it ran.

        Raises:
            StudyBusyError: Another driver has taken the study over; it runs the trial, and nothing is written.
        """
        self._points.pop(outcome.key, None)
        environment = self._environment
        if worker is not None:
            environment = replace(environment, host=worker.host, device=worker.device)
        if not self._store.record_outcome(outcome, environment, self._driver):
            self._lease.renew()

    def seconds_of_step(self, trial: Trial) -> float | None:
        """How long a step of an ended trial took in the second half of its curve; None if it did not get there."""
        points = self._store.curves([trial.key])[trial.key]
        middle = next((point for point in points if 2 * point.step >= trial.variant.spec.training.steps), None)
        if middle is None or points[-1].step == middle.step:
            return None
        return (points[-1].seconds - middle.seconds) / (points[-1].step - middle.step)

    def forget(self, trials: Iterable[Trial]) -> None:
        """Take back that these trials are running."""
        self._store.forget_unfinished([trial.key for trial in trials], self._driver)


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
        activation_bytes=variant.cost.activation_bytes,
    )


def _planned(trial: Trial) -> PlannedTrial:
    return PlannedTrial(trial.key, trial.variant.name, trial.seed)

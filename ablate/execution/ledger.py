"""The interface of the driver to the store: translates trials and variants of the plan into records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ablate.planning.plan import Plan, Trial, Variant
from ablate.store import Store
from ablate.store.leases import Lease
from ablate.store.records import (
    SETTLED,
    CurvePoint,
    DeclaredObjective,
    DesignTraits,
    Environment,
    PlannedTrial,
    SpeedTiming,
    StudyDraft,
    TrialOutcome,
    TrialRecord,
    TrialState,
    VariantRecord,
    WorkerRecord,
)

_AT_ONCE = 10_000
"""The number of variants or planned trials that are written between two renewals of the lease."""


class Ledger:
    """The rows of one study and of its trials.

    Attributes:
        replaced: The number of trials that the earlier plan of this study had, if the new plan has none of them.
        chosen: Names of the variants that results led to.

    Args:
        lease: The lease of the study, which also locks the trials that it runs.
        environment: The environment of the driver; trials may run in others.
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
        self.chosen: set[str] = set()

    @property
    def where(self) -> str:
        """The path or URL of the store."""
        return self._store.where

    def begin(self, plan: Plan, trivial: Mapping[str, Mapping[str, float]]) -> int:
        """Write the study and its plan, and reset the trials that a dead driver left as running.

        Args:
            plan: The first proposals of the design.
            trivial: The metrics of trivial baselines, by name.

        Returns:
            The number of trials of the plan that other studies have settled.
        """
        names = {study.name for study in self._store.studies()}
        known = self._store.study(self._study) if self._study in names else None
        before = (*known.planned, *known.scout_trials, *known.confirm_trials) if known is not None else ()
        self._planned_before = frozenset(planned.key for planned in before)
        self.replaced = 0 if self._planned_before & {trial.key for trial in plan.trials} else len(before)
        self.chosen = {variant.name for variant in plan.variants} - plan.declared
        self._write(plan, trivial)
        self._store.forget_unfinished([trial.key for trial in plan.trials], self._driver)
        return len(self.settled(plan.trials).keys() - self._planned_before)

    def _write(self, plan: Plan, trivial: Mapping[str, Mapping[str, float]]) -> None:
        """Write the study and its plan. A very large plan is written in parts, and the lease is renewed in between."""
        variants, planned = (*plan.variants, *plan.scouts), plan.trials
        whole = len(variants) <= _AT_ONCE and len(planned) <= _AT_ONCE
        self._store.add_codes(_codes(planned))
        self._store.begin_study(
            _draft(plan, trivial),
            [self._variant(variant) for variant in variants[:_AT_ONCE]],
            [_planned_trial(trial) for trial in planned] if whole else [],
        )
        for start in range(_AT_ONCE, len(variants), _AT_ONCE):
            self._lease.renew()
            self._store.add_variants(
                self._study, [self._variant(variant) for variant in variants[start : start + _AT_ONCE]]
            )
        for start in () if whole else range(0, len(planned), _AT_ONCE):
            self._lease.renew()
            self._store.plan_trials(self._study, [_planned_trial(trial) for trial in planned[start : start + _AT_ONCE]])
        self._lease.renew()

    def extend(self, trials: Iterable[Trial]) -> None:
        """Write trials that the design has added since the study began."""
        added = list(trials)
        if added:
            self._store.add_codes(_codes(added))
            self._store.add_variants(self._study, [self._variant(trial.variant) for trial in added])
            self._store.plan_trials(self._study, [_planned_trial(trial) for trial in added])
            self._store.forget_unfinished([trial.key for trial in added], self._driver)

    def set_trivial(self, trivial: Mapping[str, Mapping[str, float]]) -> None:
        """Write the metrics of trivial baselines, by name, of all tasks of the study so far."""
        self._store.set_trivial(self._study, trivial)

    def promote(self, trials: Sequence[Trial]) -> None:
        """Write the role of trials that were planned as stages of others, and are asked for by the design now."""
        self._store.add_variants(self._study, [self._variant(trial.variant) for trial in trials])
        self._store.plan_trials(self._study, [_planned_trial(trial) for trial in trials])

    def settled(self, trials: Iterable[Trial], *, pruned: bool = False) -> dict[str, TrialRecord]:
        """The trials that need no training, by key, whichever study trained them.

        Args:
            pruned: Whether to include trials that an earlier run of this study pruned.
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

    def mark_running(self, trial: Trial, attempts: int) -> bool:
        """Mark a trial as running.

        Returns:
            False, and nothing is written, if the trial is settled or the driver of another study runs it.
        """
        variant = trial.variant
        return self._store.record_started(
            trial.key,
            variant.hash,
            trial.seed,
            variant.fingerprint,
            self._environment,
            self._driver,
            attempts,
            trial.code.identity,
        )

    def record_worker(self, trial: Trial, worker: WorkerRecord | None, attempts: int) -> None:
        """Write the worker of a running trial (None between two workers) and the number of its attempt."""
        if worker is None:
            self._points.pop(trial.key, None)  # they belong to an attempt that was lost
        self._store.record_worker(trial.key, worker, attempts, self._driver)

    def add_point(self, trial: Trial, point: CurvePoint) -> None:
        """Buffer a point of the curve of a running trial for `write_points`."""
        waiting = self._points.setdefault(trial.key, [])
        if waiting and waiting[-1].step == point.step:
            del waiting[-1]
        waiting.append(point)

    def write_points(self) -> None:
        """Write all buffered points in one transaction: one for each of 1,000 jobs would cost more than the points."""
        points, self._points = self._points, {}
        self._store.record_points(points, self._driver)

    def end(self, outcome: TrialOutcome, worker: WorkerRecord | None) -> None:
        """Write the outcome of a trial, with its whole curve and its environment.

        Raises:
            StudyBusyError: Another driver has taken over the study and runs the trial; nothing is written.
        """
        self._points.pop(outcome.key, None)
        environment = self._environment
        if worker is not None:
            environment = replace(environment, host=worker.host, device=worker.device)
        if not self._store.record_outcome(outcome, environment, self._driver):
            self._lease.renew()

    def seconds_of_step(self, trial: Trial) -> float | None:
        """The mean seconds of a step in the second half of an ended trial; None if the trial did not get there."""
        points = self._store.curves([trial.key])[trial.key]
        middle = next((point for point in points if 2 * point.step >= trial.variant.spec.training.steps), None)
        if middle is None or points[-1].step == middle.step:
            return None
        return (points[-1].seconds - middle.seconds) / (points[-1].step - middle.step)

    def timed(self, trials: Sequence[Trial], baseline: str, *, inference: bool = False) -> set[str]:
        """The keys of the trials whose variants were timed beside a baseline, and at inference if asked for.

        Args:
            baseline: As `ablate.spec.code.timed_identity` gives it.
        """
        timings = self._store.timings([trial.key for trial in trials])
        return {
            key
            for key, known in timings.items()
            if any(timing.baseline == baseline and (timing.inference or not inference) for timing in known)
        }

    def record_timing(self, trial: Trial, timing: SpeedTiming) -> None:
        """Write how fast the variant of a finished trial trains."""
        self._store.record_timing(trial.key, timing)

    def forget(self, trials: Iterable[Trial]) -> None:
        """Reset these trials, which are marked as running."""
        self._store.forget_unfinished([trial.key for trial in trials], self._driver)

    def _variant(self, variant: Variant) -> VariantRecord:
        return VariantRecord(
            name=variant.name,
            hash=variant.hash,
            settings=dict(variant.settings),
            spec=variant.spec.model_dump(mode="json"),
            parameters=variant.cost.parameters if variant.spec.builds_model else None,
            activation_bytes=variant.cost.activation_bytes,
            chosen=variant.name in self.chosen,
        )


def _draft(plan: Plan, trivial: Mapping[str, Mapping[str, float]]) -> StudyDraft:
    space = plan.space
    return StudyDraft(
        name=space.name,
        question=space.question,
        source=space.source,
        space=space.with_names(plan.aliases).model_dump(mode="json"),
        text=space.text,
        objective=DeclaredObjective(
            metric=space.objective.compared, direction=space.objective.direction, margin=space.objective.margin
        ),
        baseline=plan.variants[0].name,
        trivial={name: dict(metrics) for name, metrics in trivial.items()},
        traits=DesignTraits(
            chooses=space.design.chooses,
            adds_seeds=space.design.adds_seeds and not space.tasks and space.objective.reach is None,
            plans_points=space.design.plans_points,
            sets_values=bool(space.design.paths()),
            finds_best=space.design.finds_best,
        ),
    )


def _planned_trial(trial: Trial) -> PlannedTrial:
    return PlannedTrial(trial.key, trial.variant.name, trial.seed, trial.role, trial.code.identity)


def _codes(trials: Iterable[Trial]) -> dict[str, Mapping[str, Any]]:
    return {trial.code.identity: trial.code.content for trial in trials if trial.code.identity}

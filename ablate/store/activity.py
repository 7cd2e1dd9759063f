"""The current activity of a store: drivers, running trials and throughput."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Connection, case, func, select

from ablate.store.drivers import abandoned, clock
from ablate.store.records import (
    ENDED,
    Activity,
    DriverRecord,
    FailedTrial,
    LeaseRecord,
    RunningTrial,
    TrialState,
    WorkerRecord,
)
from ablate.store.rows import readable
from ablate.store.tables import curves, leases, studies, study_trials, trials, variants

WINDOW = timedelta(minutes=10)
"""Time window in which throughput is measured."""
_MOST_FAILURES = 5


def activity(connection: Connection) -> Activity:
    """Read the activity in one transaction."""
    at = clock(connection)
    held = connection.execute(select(leases).order_by(leases.c.acquired_at)).mappings()
    known = [lease for row in held if (lease := readable(LeaseRecord, row)) is not None]
    return Activity(at, tuple(_driver(connection, lease, at) for lease in known), _running(connection))


def _driver(connection: Connection, lease: LeaseRecord, at: datetime) -> DriverRecord:
    begin = max(lease.acquired_at, at - WINDOW)
    ended = study_trials.c.state.in_(ENDED) & (trials.c.finished_at >= begin)
    counts = connection.execute(
        select(
            func.count().label("planned"),
            _count(study_trials.c.state.in_(ENDED)).label("settled"),
            _count(study_trials.c.state == TrialState.FAILED).label("failed"),
            _count(study_trials.c.state == TrialState.RUNNING).label("running"),
            func.coalesce(func.sum(trials.c.attempts - 1), 0).label("retries"),
            _count(ended).label("ended"),
            func.coalesce(func.sum(case((ended, trials.c.flops))), 0.0).label("flops"),
        )
        .select_from(study_trials)
        .join(studies, studies.c.id == study_trials.c.study_id)
        .outerjoin(trials, trials.c.key == study_trials.c.trial_key)
        .where(studies.c.name == lease.study)
    ).one()
    return DriverRecord(
        study=lease.study,
        host=lease.host,
        pid=lease.pid,
        since=lease.acquired_at,
        heartbeat=lease.heartbeat,
        alive=not abandoned(lease, at),
        begin=begin,
        failures=_failures(connection, lease.study) if counts.failed else (),
        **counts._mapping,
    )


def _failures(connection: Connection, study: str) -> tuple[FailedTrial, ...]:
    latest = (
        select(study_trials.c.variant, trials.c.seed, trials.c.reason)
        .join(studies, studies.c.id == study_trials.c.study_id)
        .join(trials, trials.c.key == study_trials.c.trial_key)
        .where(studies.c.name == study, study_trials.c.state == TrialState.FAILED)
        .order_by(trials.c.finished_at.desc())
        .limit(_MOST_FAILURES)
    )
    return tuple(FailedTrial(*row) for row in connection.execute(latest))


def _count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.count(case((condition, 1)))


def _running(connection: Connection) -> tuple[RunningTrial, ...]:
    keys = select(study_trials.c.trial_key).where(study_trials.c.state == TrialState.RUNNING)
    inner = curves.alias()
    last = select(func.max(inner.c.step)).where(inner.c.trial_key == trials.c.key).correlate(trials).scalar_subquery()
    point = (curves.c.trial_key == trials.c.key) & (curves.c.step == last)
    rows = connection.execute(
        select(
            *(trials.c[name] for name in ("key", "seed", "attempts", "started_at", "worker")),
            leases.c.study,
            study_trials.c.variant,
            variants.c.spec,
            curves.c.step,
            curves.c.val_loss,
            curves.c.seconds,
            curves.c.flops,
        )
        .join(variants, variants.c.hash == trials.c.variant_hash)
        .outerjoin(leases, leases.c.token == trials.c.driver)
        .outerjoin(studies, studies.c.name == leases.c.study)
        .outerjoin(study_trials, (study_trials.c.study_id == studies.c.id) & (study_trials.c.trial_key == trials.c.key))
        .outerjoin(curves, point)
        .where(trials.c.key.in_(keys), trials.c.state == TrialState.RUNNING)
        .order_by(trials.c.started_at, trials.c.key)
    )
    return tuple(
        RunningTrial(
            key=row.key,
            study=row.study or "",
            variant=row.variant or "",
            seed=row.seed,
            step=row.step,
            steps=row.spec.get("training", {}).get("steps", 0),
            val_loss=row.val_loss,
            attempts=row.attempts,
            started_at=row.started_at,
            worker=None if row.worker is None else readable(WorkerRecord, row.worker),
            seconds=row.seconds or 0.0,
            flops=row.flops or 0.0,
            precision=row.spec.get("training", {}).get("precision", "fp32"),
        )
        for row in rows
    )

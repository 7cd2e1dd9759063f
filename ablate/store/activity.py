"""The current activity of a store: which drivers are alive, running trials, throughput.

The lease of a dead driver is released. Running trials carry the token of the lease of their driver, and are free when
that lease is gone.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, func, select, type_coerce

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
from ablate.store.tables import UtcDateTime, curves, leases, studies, study_trials, trials, variants

# A driver whose process cannot be seen from here is assumed dead if its heartbeat is older than this.
HEARTBEAT_TIMEOUT = timedelta(seconds=60)
# Two readings of a process's start time may differ by this many seconds.
_READING_SLACK = 2.0


def drop_abandoned(connection: Connection, alive: str = "") -> int:
    """Remove the leases of dead drivers, which frees their trials.

    Args:
        connection: Connection with an open transaction.
        alive: Token of the calling driver, which is alive even if its heartbeat is old.

    Returns:
        Number of removed leases.
    """
    now = clock(connection)
    count_from(now, connection)
    held = connection.execute(select(leases)).mappings()
    dead = [row["token"] for row in held if row["token"] != alive and is_abandoned(readable(LeaseRecord, row), now)]
    if dead:
        connection.execute(leases.delete().where(leases.c.token.in_(dead)))
    return len(dead)


def living_leases(connection: Connection) -> list[LeaseRecord]:
    """The leases of drivers that are alive."""
    now = clock(connection)
    held = (readable(LeaseRecord, row) for row in connection.execute(select(leases)).mappings())
    return [holder for holder in held if holder is not None and not is_abandoned(holder, now)]


def free(driver: ColumnElement[str]) -> ColumnElement[bool]:
    """SQL condition on `trials`: no other living driver runs the trial. Failed and pruned trials are always free."""
    held = select(leases.c.token)
    ended = trials.c.state.in_((TrialState.FAILED, TrialState.PRUNED))
    return ended | (trials.c.driver == driver) | trials.c.driver.not_in(held)


def left_behind(connection: Connection, running: Sequence[str]) -> list[str]:
    """Of the keys of running trials, those whose driver is dead or has lost its lease: the next run trains them."""
    if not running:
        return []
    alive = [holder.token for holder in living_leases(connection)]
    dead = trials.c.driver.not_in(["", *alive])  # without a driver, nothing is known
    return list(connection.execute(select(trials.c.key).where(trials.c.key.in_(running), dead)).scalars())


def clock(connection: Connection) -> datetime:
    """The time of the database's clock; clocks of several hosts may differ."""
    now = connection.execute(select(type_coerce(func.now(), UtcDateTime))).scalar_one()
    assert now.tzinfo is UTC
    return now


def processes() -> str:
    """Identifies the process table (PID namespace) of this process: host, boot and container."""
    known = [platform.node()]
    with suppress(OSError):  # Linux only
        known += [Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.readlink("/proc/self/ns/pid")]
    return " ".join(known)


def process_began(pid: int) -> float:
    """Start time of a process on this machine in seconds, independent of later changes of the clock.

    On Linux it is the time since boot; elsewhere the recorded time of day.

    Raises:
        psutil.NoSuchProcess: There is no such process.
        psutil.AccessDenied: Its start time cannot be read.
    """
    import psutil

    if sys.platform == "linux":
        with suppress(OSError, IndexError, ValueError):
            # The program's name, in brackets, may contain any characters; the 20th value after it is the start time.
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            return int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return float(psutil.Process(pid).create_time())


def is_abandoned(holder: LeaseRecord | None, now: datetime) -> bool:
    """Whether a driver is dead, or its process cannot be seen and its heartbeat is too old; so is an unreadable lease.

    A living process on this machine keeps its lease even if its heartbeat is old: the clock may have been set forward,
    or the machine may have slept.
    """
    if holder is None:
        return True
    if holder.processes != processes():  # containers may share the name of their host, and do not see each other
        return bool(now - holder.heartbeat > HEARTBEAT_TIMEOUT)
    import psutil

    try:
        reused = abs(process_began(holder.pid) - holder.process_started) > _READING_SLACK
        return bool(reused or psutil.Process(holder.pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


def count_from(now: datetime, connection: Connection) -> None:
    """Treat heartbeats in the future, written before the clock was set back, as written now.

    Otherwise the lease of a dead driver would not expire until the clock reaches them.
    """
    connection.execute(leases.update().where(leases.c.heartbeat > now + HEARTBEAT_TIMEOUT).values(heartbeat=now))


WINDOW = timedelta(minutes=10)
"""Time window in which throughput is measured."""
_MOST_FAILURES = 5


def activity(connection: Connection) -> Activity:
    """Read the activity in one transaction."""
    at = clock(connection)
    held = connection.execute(select(leases).order_by(leases.c.acquired_at)).mappings()
    known = [lease for row in held if (lease := readable(LeaseRecord, row)) is not None]
    return Activity(at, tuple(_driver(connection, lease, at) for lease in known), _running_trials(connection))


def _driver(connection: Connection, lease: LeaseRecord, at: datetime) -> DriverRecord:
    begin = max(lease.acquired_at, at - WINDOW)
    ended = study_trials.c.state.in_(ENDED) & (trials.c.finished_at >= begin)
    counts = connection.execute(
        select(
            func.count().label("planned"),
            func.count().filter(study_trials.c.state.in_(ENDED)).label("settled"),
            func.count().filter(study_trials.c.state == TrialState.FAILED).label("failed"),
            func.count().filter(study_trials.c.state == TrialState.RUNNING).label("running"),
            func.coalesce(func.sum(trials.c.attempts - 1), 0).label("retries"),
            func.count().filter(ended).label("ended"),
            func.coalesce(func.sum(trials.c.flops).filter(ended), 0.0).label("flops"),
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
        alive=not is_abandoned(lease, at),
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


def _running_trials(connection: Connection) -> tuple[RunningTrial, ...]:
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

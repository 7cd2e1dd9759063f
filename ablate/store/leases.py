"""`Lease`: the exclusive right of one driver to run a study. The lease of a dead driver is released.

Running trials carry the token of the lease of their driver, and are free when that lease is gone.
"""

from __future__ import annotations

import os
import platform
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import ColumnElement, Connection, Row, func, select, type_coerce

from ablate.errors import StudyBusyError
from ablate.store.database import Database
from ablate.store.records import TrialState
from ablate.store.tables import UtcDateTime, leases, trials

# A driver on another host is assumed dead if its heartbeat is older than this.
HEARTBEAT_TIMEOUT = timedelta(seconds=60)
# Two readings of a process's creation time may differ by this many seconds if the clock is adjusted.
_CLOCK_SLACK = 2.0


class Lease:
    """Context manager: holds the lease of a study while the body runs.

    Attributes:
        study: Name of the study.
        token: Token that marks the trials of its driver.

    Raises:
        StudyBusyError: On entering, if another driver that is alive holds it.
    """

    def __init__(self, database: Database, study: str) -> None:
        self.study = study
        self.token = uuid.uuid4().hex
        self._database = database

    def __enter__(self) -> Self:
        with self._database.writing() as connection:
            if not self._take(connection):
                raise self._busy(connection)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._database.writing() as connection:
            connection.execute(leases.delete().where(leases.c.study == self.study, leases.c.token == self.token))

    def renew(self) -> None:
        """Update the heartbeat. The driver calls it at least every 20 seconds.

        Raises:
            StudyBusyError: The lease expired and another driver has acquired it.
        """
        with self._database.writing() as connection:
            renewed = connection.execute(
                leases.update()
                .where(leases.c.study == self.study, leases.c.token == self.token)
                .values(heartbeat=clock(connection))
            )
            if not renewed.rowcount:
                raise self._busy(connection)

    def _take(self, connection: Connection) -> bool:
        """Insert our row, or replace that of a dead driver."""
        import psutil  # not needed for reading

        process = psutil.Process()
        now = clock(connection)
        ours = {
            "study": self.study,
            "token": self.token,
            "host": platform.node(),
            "pid": process.pid,
            "process_started": process.create_time(),
            "acquired_at": now,
            "heartbeat": now,
            "processes": processes(),
        }
        inserted = connection.execute(self._database.insert(leases).values(ours).on_conflict_do_nothing())
        if inserted.rowcount:
            return True
        holder = self._holder(connection)
        if holder is None or not abandoned(holder, now):
            return False
        # Compare and swap: of several drivers that try this, one succeeds.
        replaced = connection.execute(
            leases.update().where(leases.c.study == self.study, leases.c.token == holder.token).values(ours)
        )
        return bool(replaced.rowcount)

    def _holder(self, connection: Connection) -> Row[Any] | None:
        return connection.execute(select(leases).where(leases.c.study == self.study)).first()

    def _busy(self, connection: Connection) -> StudyBusyError:
        holder = self._holder(connection)
        if holder is None:
            who = "another process that has just ended"
        else:
            who = f"process {holder.pid} on {holder.host} since {holder.acquired_at:%Y-%m-%d %H:%M:%S} UTC"
        return StudyBusyError(
            f"the study {self.study!r} is being run by {who}",
            where=self._database.where,
            remedy="Wait until it is done, or stop it and run the same command again, which resumes the study."
            f" If its machine is gone, its lease expires after {HEARTBEAT_TIMEOUT.seconds} seconds.",
        )


def drop_abandoned(connection: Connection, alive: str = "") -> int:
    """Remove the leases of dead drivers, which frees their trials.

    Args:
        connection: Connection with an open transaction.
        alive: Token of the calling driver, which is alive even if its heartbeat is old.

    Returns:
        Number of removed leases.
    """
    now = clock(connection)
    dead = [row.token for row in connection.execute(select(leases)) if row.token != alive and abandoned(row, now)]
    if dead:
        connection.execute(leases.delete().where(leases.c.token.in_(dead)))
    return len(dead)


def free(driver: ColumnElement[str]) -> ColumnElement[bool]:
    """SQL condition on `trials`: no other living driver runs the trial. Failed and pruned trials are always free."""
    held = select(leases.c.token)
    ended = trials.c.state.in_((TrialState.FAILED, TrialState.PRUNED))
    return ended | (trials.c.driver == driver) | trials.c.driver.not_in(held)


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


def abandoned(holder: Row[Any], now: datetime) -> bool:
    """Whether the driver of a row of `leases` is dead, or its heartbeat is too old."""
    if now - holder.heartbeat > HEARTBEAT_TIMEOUT:
        return True
    if holder.processes != processes():  # containers may have the same host name but separate process tables
        return False
    import psutil

    try:
        process = psutil.Process(holder.pid)
        reused = abs(process.create_time() - holder.process_started) > _CLOCK_SLACK
        return bool(reused or process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False

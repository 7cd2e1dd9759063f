"""`Lease`: the right to run a study. One driver holds it, on any database, and a dead driver loses it at once.

The trials that a driver runs are held by the same lease: they carry its token, and are free when it is gone.
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

# A holder whose process cannot be looked at from here, and that gave no sign of life for so long, is taken for dead.
PATIENCE = timedelta(seconds=60)
# Two readings of the time at which one process began may differ by this many seconds.
_READING_SLACK = 2.0


class Lease:
    """Context manager: holds the lease of a study while the body runs.

    Attributes:
        study: Its name.
        token: What the trials that its holder runs are marked with.

    Raises:
        StudyBusyError: On entering, if a living driver holds it.
    """

    def __init__(self, database: Database, study: str) -> None:
        self.study = study
        self.token = uuid.uuid4().hex
        self._database = database

    def __enter__(self) -> Self:
        with self._database.writing() as connection:
            busy = None if self._take(connection) else self._busy(connection)
        if busy is not None:
            raise busy
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._database.writing() as connection:
            connection.execute(leases.delete().where(leases.c.study == self.study, leases.c.token == self.token))

    def renew(self) -> None:
        """Give a sign of life. The driver calls it at least every 20 seconds.

        Raises:
            StudyBusyError: The lease was lost: no sign came for too long, and another driver took over.
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
        """Put our row where there is none, or in the place of a dead driver's."""
        import psutil  # late: who only reads needs none

        process = psutil.Process()
        now = clock(connection)
        _count_from(now, connection)
        ours = {
            "study": self.study,
            "token": self.token,
            "host": platform.node(),
            "pid": process.pid,
            "process_started": process_began(process.pid),
            "acquired_at": now,
            "heartbeat": now,
            "processes": processes(),
        }
        fresh = connection.execute(self._database.insert(leases).values(ours).on_conflict_do_nothing())
        if fresh.rowcount:
            return True
        holder = self._holder(connection)
        if holder is None or not abandoned(holder, now):
            return False
        # Only if it is still the same dead driver's: of several that got here, one succeeds.
        taken = connection.execute(
            leases.update().where(leases.c.study == self.study, leases.c.token == holder.token).values(ours)
        )
        return bool(taken.rowcount)

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
            remedy="Wait until it is done, or stop it and run the same command again, which goes on from there."
            f" A process whose machine is gone loses the study after {PATIENCE.seconds} seconds.",
        )


def drop_abandoned(connection: Connection, alive: str = "") -> int:
    """Remove the leases of dead drivers, and so free their trials.

    Args:
        connection: In a transaction.
        alive: Token of the driver that asks; it lives, however long it has given no sign of it.

    Returns:
        How many there were.
    """
    now = clock(connection)
    _count_from(now, connection)
    dead = [row.token for row in connection.execute(select(leases)) if row.token != alive and abandoned(row, now)]
    if dead:
        connection.execute(leases.delete().where(leases.c.token.in_(dead)))
    return len(dead)


def free(driver: ColumnElement[str]) -> ColumnElement[bool]:
    """Of the row of a trial: that no living driver but this one runs it; a failed or pruned one is run by nobody."""
    held = select(leases.c.token)
    over = trials.c.state.in_((TrialState.FAILED, TrialState.PRUNED))
    return over | (trials.c.driver == driver) | trials.c.driver.not_in(held)


def clock(connection: Connection) -> datetime:
    """The database's clock: those of several machines need not agree."""
    now = connection.execute(select(type_coerce(func.now(), UtcDateTime))).scalar_one()
    assert now.tzinfo is UTC
    return now


def processes() -> str:
    """Which table of processes this one stands in: of this host since it was started, or of its container."""
    known = [platform.node()]
    with suppress(OSError):  # told by Linux alone
        known += [Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.readlink("/proc/self/ns/pid")]
    return " ".join(known)


def process_began(pid: int) -> float:
    """When a process of this machine began, in seconds; a clock that is set does not change what this gives.

    Linux counts from its own start, and tells the time of day by the clock as it is set now; others keep that time.

    Raises:
        psutil.NoSuchProcess: There is no such process.
        psutil.AccessDenied: It cannot be looked at.
    """
    import psutil

    try:
        # The name of the program, which stands in brackets, may hold anything; the 20th value after it is the time.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return float(psutil.Process(pid).create_time())


def abandoned(holder: Row[Any], now: datetime) -> bool:
    """Whether the driver of a row of `leases` is dead, or cannot be looked at and gave no sign of life for too long.

    A living process of this machine holds its lease however old its sign of life is: the clock may have been set
    forward, or the machine may have slept.
    """
    if holder.processes != processes():  # containers may share the name of their host, and do not see each other
        return bool(now - holder.heartbeat > PATIENCE)
    import psutil

    try:
        reused = abs(process_began(holder.pid) - holder.process_started) > _READING_SLACK
        return bool(reused or psutil.Process(holder.pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


def _count_from(now: datetime, connection: Connection) -> None:
    """Let signs of life from the future, given before the clock was set back, count from now on.

    Else the study of a dead driver would be held until the clock comes there again.
    """
    connection.execute(leases.update().where(leases.c.heartbeat > now + PATIENCE).values(heartbeat=now))

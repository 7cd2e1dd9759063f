"""`Lease`: the exclusive right of one driver to run a study."""

from __future__ import annotations

import platform
import uuid
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Row, select

from ablate.errors import StudyBusyError
from ablate.store.activity import HEARTBEAT_TIMEOUT, clock, count_from, is_abandoned, process_began, processes
from ablate.store.database import Database
from ablate.store.records import LeaseRecord
from ablate.store.rows import readable
from ablate.store.tables import leases


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
        count_from(now, connection)
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
        inserted = connection.execute(self._database.insert(leases).values(ours).on_conflict_do_nothing())
        if inserted.rowcount:
            return True
        row = self._row(connection)
        if row is None or not is_abandoned(readable(LeaseRecord, row._mapping), now):
            return False
        # Compare and swap: of several drivers that try this, one succeeds.
        replaced = connection.execute(
            leases.update().where(leases.c.study == self.study, leases.c.token == row.token).values(ours)
        )
        return bool(replaced.rowcount)

    def _row(self, connection: Connection) -> Row[Any] | None:
        return connection.execute(select(leases).where(leases.c.study == self.study)).first()

    def _busy(self, connection: Connection) -> StudyBusyError:
        row = self._row(connection)
        holder = None if row is None else readable(LeaseRecord, row._mapping)
        who = "another process that has just ended" if holder is None else holder.told()
        return StudyBusyError(
            f"the study {self.study!r} is being run by {who}",
            where=self._database.where,
            remedy="Wait until it is done, or stop it and run the same command again, which resumes the study."
            f" If its machine is gone, its lease expires after {HEARTBEAT_TIMEOUT.seconds} seconds.",
        )

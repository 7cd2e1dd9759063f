"""Which drivers of a store are alive. The lease of a dead driver is released.

Running trials carry the token of the lease of their driver, and are free when that lease is gone.
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

from ablate.store.records import LeaseRecord, TrialState
from ablate.store.rows import readable
from ablate.store.tables import UtcDateTime, leases, trials

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
    dead = [row["token"] for row in held if row["token"] != alive and abandoned(readable(LeaseRecord, row), now)]
    if dead:
        connection.execute(leases.delete().where(leases.c.token.in_(dead)))
    return len(dead)


def living(connection: Connection) -> list[LeaseRecord]:
    """The leases of drivers that are alive."""
    now = clock(connection)
    held = (readable(LeaseRecord, row) for row in connection.execute(select(leases)).mappings())
    return [holder for holder in held if holder is not None and not abandoned(holder, now)]


def free(driver: ColumnElement[str]) -> ColumnElement[bool]:
    """SQL condition on `trials`: no other living driver runs the trial. Failed and pruned trials are always free."""
    held = select(leases.c.token)
    ended = trials.c.state.in_((TrialState.FAILED, TrialState.PRUNED))
    return ended | (trials.c.driver == driver) | trials.c.driver.not_in(held)


def left_behind(connection: Connection, running: Sequence[str]) -> list[str]:
    """Of the keys of running trials, those whose driver is dead or has lost its lease: the next run trains them."""
    if not running:
        return []
    alive = [holder.token for holder in living(connection)]
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


def abandoned(holder: LeaseRecord | None, now: datetime) -> bool:
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

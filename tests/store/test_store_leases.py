"""One driver for each study, whatever dies and however many ask at once."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import func, select, update
from store_samples import begin, now, sql

from ablate.errors import StudyBusyError
from ablate.store import Store, open_store
from ablate.store.activity import HEARTBEAT_TIMEOUT, process_began, processes
from ablate.store.tables import leases, studies

HOLD = """
import sys, time
from ablate.store import open_store
with open_store(sys.argv[1]) as store, store.lease("s"):
    print("held", flush=True)
    time.sleep(100)
"""


def change(location: str, **values: Any) -> None:
    with sql(location) as connection:
        connection.execute(update(leases).values(**values))


def test_a_second_driver_is_refused_with_the_holder_of_the_study(store: Store, location: str) -> None:
    with store.lease("s"):
        with store.lease("another study"):
            pass
        with open_store(location) as second, pytest.raises(StudyBusyError) as caught, second.lease("s"):
            pass
        assert f"'s' is being run by process {os.getpid()} on " in str(caught.value)
        assert f"{now():%Y-%m-%d}" in str(caught.value)
        assert "same command again" in str(caught.value)
        assert "expires after 60 seconds" in str(caught.value)
    with store.lease("s"):
        pass


def test_a_lease_is_given_back_when_the_body_fails(store: Store) -> None:
    with pytest.raises(KeyboardInterrupt), store.lease("s"):
        raise KeyboardInterrupt
    with store.lease("s"):
        pass


@pytest.mark.parametrize("reaped", [True, False])
def test_a_killed_driver_loses_the_study_at_once(store: Store, location: str, reaped: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, location], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StudyBusyError, match=f"process {holder.pid}"), store.lease("s"):
            pass
        holder.kill()
        if reaped:
            holder.wait()
        else:
            while psutil.Process(holder.pid).status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.01)
        with store.lease("s") as lease:
            lease.renew()


def test_a_process_that_got_the_number_of_a_dead_driver_does_not_count(store: Store, location: str) -> None:
    with store.lease("s") as lost:
        change(location, process_started=process_began(os.getpid()) - 3600)
        with store.lease("s") as lease:
            lease.renew()
            with pytest.raises(StudyBusyError):
                lost.renew()
        with pytest.raises(StudyBusyError, match="just ended"):
            lost.renew()


@pytest.mark.parametrize(
    "where",
    [{"host": "elsewhere", "processes": "others"}, {"processes": f"{processes()} of a container"}],
    ids=["on another machine", "in a container with the name of this host"],
)
def test_a_driver_that_is_invisible_from_here_is_believed_for_a_minute(
    store: Store, location: str, where: dict[str, str]
) -> None:
    with store.lease("s") as seen:
        change(location, **where, heartbeat=now() - 2 * HEARTBEAT_TIMEOUT)
        seen.renew()
        for pid, change_of_time in ((2**22 + 1, {}), (1, {"heartbeat": now() - 0.9 * HEARTBEAT_TIMEOUT})):
            change(location, pid=pid, **change_of_time)
            with pytest.raises(StudyBusyError, match=f"on {where.get('host', '')}"), store.lease("s"):
                pass
        change(location, heartbeat=now() - 1.1 * HEARTBEAT_TIMEOUT)
        with store.lease("s") as lease:
            lease.renew()


def test_a_clock_that_is_set_forward_takes_no_lease_from_a_living_driver(store: Store, location: str) -> None:
    """An hour, or a night in which the machine slept: the driver is there, and renews a moment later."""
    with subprocess.Popen([sys.executable, "-c", HOLD, location], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        change(location, heartbeat=now() - timedelta(hours=1))
        store.forget_unfinished([], "of another")
        with pytest.raises(StudyBusyError, match=f"process {holder.pid}"), store.lease("s"):
            pass
        holder.kill()
        holder.wait()
        with store.lease("s"):
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the time of day at which a process began is kept")
def test_when_a_process_began_does_not_follow_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux tells by the clock as it is set now when it was started, and psutil adds the time since then."""
    before = process_began(os.getpid())
    booted = psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.BOOT_TIME", booted + 3600, raising=False)
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: booted + 3600)
    assert process_began(os.getpid()) == before
    with open("/proc/uptime") as file:
        up = float(file.read().split()[0])
    assert 0 < before < up


def test_a_clock_that_is_set_back_holds_no_study_of_a_dead_driver(store: Store, location: str) -> None:
    """By the clock as it is set now, its last sign of life is in the future."""
    with store.lease("s"):
        change(location, host="elsewhere", processes="others", heartbeat=now() + timedelta(hours=1))
        for ask in (lambda: store.lease("s").__enter__(), lambda: store.forget_unfinished([], "of another")):
            with suppress(StudyBusyError):
                ask()
            with sql(location) as connection:
                (heartbeat,) = connection.execute(select(leases.c.heartbeat)).scalars()
            assert abs(heartbeat - now()) < HEARTBEAT_TIMEOUT / 2
            change(location, heartbeat=now() + timedelta(hours=1))


def test_a_driver_that_asks_is_alive_however_long_it_was_silent(store: Store, location: str) -> None:
    with store.lease("s") as lease:
        change(location, processes="others", heartbeat=now() - 2 * HEARTBEAT_TIMEOUT)
        store.forget_unfinished([], lease.token)
        lease.renew()
        change(location, heartbeat=now() - 2 * HEARTBEAT_TIMEOUT)
        store.forget_unfinished([], "of another")
        with pytest.raises(StudyBusyError):
            lease.renew()


def test_a_late_exit_does_not_end_the_lease_of_the_next_driver(store: Store, location: str) -> None:
    first = store.lease("s")
    first.__enter__()
    change(location, processes="others", heartbeat=now() - 2 * HEARTBEAT_TIMEOUT)
    with store.lease("s") as second:
        first.__exit__(None, None, None)
        second.renew()


FRESH, FORKED = multiprocessing.get_context("spawn"), multiprocessing.get_context("fork")
"""Racers are forked by a fresh process: threads of this one may hold locks that a fork would wait for."""


def run_all(racers: Sequence[BaseProcess]) -> None:
    """Run processes to their end."""
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert [racer.exitcode for racer in racers] == [0] * len(racers)


def race_for_lease(location: str, rounds: int, number: int, barrier: Barrier, won: Any) -> None:
    """In odd rounds the lease of a dead driver is there already."""
    with open_store(location) as store:
        for turn in range(rounds):
            if turn % 2 and number == 0:
                store.lease("s").__enter__()
                change(location, host="elsewhere", processes="others", heartbeat=now() - 2 * HEARTBEAT_TIMEOUT)
            barrier.wait()
            lease = store.lease("s")
            try:
                lease.__enter__()
            except StudyBusyError:
                barrier.wait()
            else:
                won[turn * barrier.parties + number] = 1
                barrier.wait()
                lease.__exit__(None, None, None)
            barrier.wait()


def all_race_for_lease(location: str, processes: int, rounds: int) -> None:
    barrier, won = FORKED.Barrier(processes, timeout=300), FORKED.Array("i", processes * rounds)
    racers = [
        FORKED.Process(target=race_for_lease, args=(location, rounds, number, barrier, won))
        for number in range(processes)
    ]
    run_all(racers)
    assert [sum(won[turn * processes : (turn + 1) * processes]) for turn in range(rounds)] == [1] * rounds


def test_of_several_that_race_for_a_lease_one_gets_it(location: str) -> None:
    open_store(location).close()
    run_all([FRESH.Process(target=all_race_for_lease, args=(location, 4, 30))])


def race_to_make(locations: list[str], barrier: Barrier) -> None:
    for number, location in enumerate(locations):
        barrier.wait()
        with open_store(location) as store:
            begin(store, study=f"{os.getpid()} {number}")


def all_race_to_make(locations: list[str], processes: int) -> None:
    barrier = FORKED.Barrier(processes, timeout=300)
    run_all([FORKED.Process(target=race_to_make, args=(locations, barrier)) for _ in range(processes)])


def test_several_processes_may_make_the_same_store_at_once(tmp_path: Path) -> None:
    processes = 3
    locations = [str(tmp_path / f"{number}.db") for number in range(8)]
    run_all([FRESH.Process(target=all_race_to_make, args=(locations, processes))])
    for location in locations:
        with sql(location) as connection:
            assert connection.execute(select(func.count()).select_from(studies)).scalar() == processes

"""A study that is killed, interrupted, or run twice at once: nothing that was finished is lost or trained again."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import random
import signal
import subprocess
import termios
import time
from contextlib import suppress

import psutil
import pytest
from cli_runs import ABLATE, Workplace, eventually, wait_for
from forked_command import ForkedCommand

from benchmarks.forked_workers import FORKED


def workers_of(process: subprocess.Popen[str] | ForkedCommand) -> list[psutil.Process]:
    children = psutil.Process(process.pid).children()
    return [one for one in children if one.name() == FORKED or "ablate.execution.worker" in one.cmdline()]


def is_over(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_study_killed_at_any_moment_continues(place: Workplace) -> None:
    # Two at a time, by themselves: what trains at once ends at once, and could end the study before it is killed.
    command = ("study", place.space(steps=150, seeds=4), "--json", "--workers", "2", "--pack", "1")
    numbers = random.Random(0)
    kept: dict[str, tuple[object, ...]] = {}
    orphans: list[psutil.Process] = []
    # From before the store exists, over a trial's end, to the middle of a trial.
    for finished, delay in ((0, 0.1), (1, 0.0), (3, numbers.random() * 0.1)):
        driver = place.fork(*command)
        eventually(lambda goal=finished: len(place.trials("finished")) >= goal)
        time.sleep(delay)
        orphans += workers_of(driver)
        driver.kill()
        assert wait_for(driver).code == -signal.SIGKILL
        now = place.trials("finished")
        assert kept.items() <= now.items()
        kept = now
    assert orphans
    eventually(lambda: all(is_over(worker) for worker in orphans), timeout=300)
    assert 3 <= len(kept) < 12

    last = wait_for(place.fork(*command))
    assert last.code == 0
    expected = {
        "study": "tiny",
        "trials": 12,
        "trained": 12 - len(kept),
        "reused": len(kept),
        "failed": 0,
        "diverged": 0,
        "pruned": 0,
        "interrupted": False,
    }
    assert last.last_object.items() >= expected.items()
    finished = place.trials("finished")
    assert len(finished) == 12
    assert kept.items() <= finished.items()
    assert place.rows("SELECT count(*) FROM trials WHERE state <> 'finished'") == [(0,)]
    assert all(len(place.curve(key)) == 11 for key in finished)


def test_one_process_at_a_time_and_ctrl_c_ends_it_well(place: Workplace) -> None:
    file = place.space(steps=300, seeds=8)
    driver = place.fork("study", file, "--workers", "2", "--pack", "1")
    eventually(lambda: place.trials("finished"))
    workers = workers_of(driver)
    for worker in workers:
        worker.suspend()  # so that there is something left to do when the second process has answered

    second = place.call("study", file, "--json")
    assert second.code == 2
    assert second.out == ""
    error = json.loads(second.err.splitlines()[-1])["error"]
    assert f"the study 'tiny' is being run by process {driver.pid}" in error["problem"]
    assert "Traceback" not in second.err
    assert driver.poll() is None

    os.killpg(driver.pid, signal.SIGINT)  # as the terminal does
    for worker in workers:
        worker.resume()
    stopped = wait_for(driver)
    assert stopped.code == 130
    assert stopped.err == ""
    finished = place.trials("finished")
    title, again = stopped.out.splitlines()[-2:]
    assert title == f"Stopped with {len(finished)} of 24 trials done; they are stored. Continue:"
    assert again == f"  {ABLATE} study {file} --workers 2 --pack 1"
    assert all(is_over(worker) for worker in workers)
    assert place.trials("running") == {}
    assert place.rows("SELECT * FROM leases") == []
    progress = json.loads(place.call("show", "tiny", "--json").out)["progress"]
    assert (progress["finished"], progress["waiting"]) == (len(finished), 24 - len(finished))


@pytest.mark.parametrize("hung_up", [True, False])
def test_a_terminal_that_closes_loses_nothing(place: Workplace, hung_up: bool) -> None:
    """A driver that receives SIGHUP stops in order; one that does not (`disown`) continues without output."""
    steps = 600 if hung_up else 60  # a study that is to be stopped must not end before
    command = ("study", place.space(steps=steps, seeds=2), "--workers", "1", "--pack", "1")
    ours, theirs = pty.openpty()

    # The terminal's own process: when it is gone, the system sends SIGHUP to whoever runs on the terminal.
    def on_the_terminal() -> None:
        os.setsid()
        if hung_up:
            fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    driver = place.fork(*command, stdout=theirs, place=on_the_terminal)
    os.close(theirs)
    os.set_blocking(ours, False)
    shown = bytearray()

    def shows_a_trial_and_has_finished_one() -> bool:
        with suppress(BlockingIOError):
            shown.extend(os.read(ours, 4096))
        return b"step" in shown and bool(place.trials("finished"))

    eventually(shows_a_trial_and_has_finished_one)
    kept = place.trials("finished")
    os.close(ours)
    stopped = wait_for(driver)
    assert stopped.err == ""
    assert place.trials("running") == {}
    assert place.rows("SELECT * FROM leases") == []
    assert kept.items() <= place.trials("finished").items()
    assert stopped.code == (130 if hung_up else 0)
    assert hung_up or len(place.trials("finished")) == 6


def test_ctrl_c_before_anything_is_trained(place: Workplace) -> None:
    driver = place.fork("study", place.space(steps=10**6))
    eventually(place.store.exists)
    driver.send_signal(signal.SIGINT)
    stopped = wait_for(driver)
    assert stopped.code == 130
    assert "Traceback" not in stopped.out + stopped.err


def test_a_trial_whose_worker_is_killed_is_trained_again(place: Workplace) -> None:
    driver = place.fork("study", place.space(steps=100, seeds=2), "--workers", "1", "--pack", "1")
    eventually(lambda: any(place.curve(key) for key in place.trials("running")))
    victim = workers_of(driver)[0]
    victim.suspend()
    time.sleep(1.0)  # the end of its trial was received, and it trains the next one
    assert place.trials("running")
    victim.kill()
    done = wait_for(driver)
    assert done.code == 0, done
    assert "its worker was killed by SIGKILL; trained again" in done.out
    assert len(place.trials("finished")) == 6
    assert all(len(place.curve(key)) == 11 for key in place.trials("finished"))


def test_a_study_whose_store_is_deleted_stops_and_continues_in_the_new_file(place: Workplace) -> None:
    space = place.space(steps=30, seeds=8)
    driver = place.fork("study", space, "--workers", "1", "--pack", "1")
    eventually(lambda: len(place.trials("finished")) >= 2)
    before = place.trials("finished")
    place.store.unlink()
    stopped = wait_for(driver)
    assert stopped.code == 2, stopped
    assert "deleted or replaced" in stopped.err
    assert "Traceback" not in stopped.out + stopped.err
    assert not place.store.exists()
    place.store = place.store.with_name("ablate.rescued-1.db")
    kept = place.trials("finished")
    assert before.items() <= kept.items()
    assert len(kept) < 24, "it does not train everything first"
    done = place.call("study", space, "--store", str(place.store), "--workers", "1")
    assert done.code == 0, done.err
    after = place.trials("finished")
    assert len(after) == 24
    assert kept.items() <= after.items()

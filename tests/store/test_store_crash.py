"""A driver that is killed at any moment loses nothing that it had recorded, and leaves nothing half-written."""

from __future__ import annotations

import functools
import itertools
import os
import random
import shutil
import signal
import sqlite3
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, func, select
from store_samples import HERE, begin, curve, digest, outcome, sql, start

from ablate.store import Store, TrialState, open_store
from ablate.store.tables import curves, metadata, trials
from ablate.tables.description import read_description
from ablate.tables.judging import judge_files, keep

ASSETS = Path(__file__).parent / "assets"


def write(location: str, seed: int, told: int) -> None:
    """What a driver does, without an end: it writes the seed of each trial that is recorded to a file descriptor."""
    with open_store(location) as store, store.lease("s") as lease:
        while True:
            key = start(store, "baseline", seed)
            for point in curve(3):
                store.record_points({key: [point]})
            store.record_outcome(outcome("baseline", seed, points=20), HERE)
            os.write(told, f"{seed}\n".encode())
            lease.renew()
            seed += 1


def forked(work: Callable[[], object]) -> int:
    """The id of a process that does some work and ends with 0, or with 1 if it raises; no store is open now."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads hold nothing that the child needs
        child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each driver is a forked process")
def test_kill_again_and_again(location: str) -> None:
    chance = random.Random(0)
    with open_store(location) as store:
        begin(store)
    done: list[int] = []
    for turn in range(8):
        reading, writing = os.pipe()
        writer = forked(functools.partial(write, location, 1000 * turn, writing))
        os.close(writing)
        with open(reading) as told:
            done += [int(told.readline()) for _ in range(chance.randint(1, 5))]
            time.sleep(chance.uniform(0, 0.03))
            os.kill(writer, signal.SIGKILL)
            os.waitpid(writer, 0)
            done += [int(line) for line in told]
        keys = [digest(("baseline", seed)) for seed in done]
        with open_store(location) as store:
            records = store.trials(keys)
            assert list(records) == keys
            assert {trial.state for trial in records.values()} == {TrialState.FINISHED}
            assert store.curves(keys) == dict.fromkeys(keys, curve(20))
            cut_off = [digest(("baseline", done[-1] + 1))]
            if all(trial.state is TrialState.RUNNING for trial in store.trials(cut_off).values()):
                store.forget_unfinished(cut_off)
                assert store.trials(cut_off) == {}
    with sql(location) as connection:
        complete = select(func.count()).select_from(trials).where(trials.c.state == TrialState.FINISHED)
        points = select(func.count()).select_from(curves)
        assert connection.execute(points).scalar() == 20 * connection.execute(complete).scalar_one()


def die(prepared: Callable[[], Callable[[], object]], steps: int) -> bool:
    """Do prepared work in a process that is killed before so many statements and commits; False if it needs fewer."""

    def killed() -> None:
        work, left = prepared(), itertools.count(steps, -1)

        def kill(*_: object) -> None:
            if next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        event.listen(Engine, "before_cursor_execute", kill)
        event.listen(Engine, "commit", kill)
        work()

    child = forked(killed)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended in (0, -signal.SIGKILL)
    return ended != 0


def dump(path: Path) -> list[str]:
    """All tables and rows, read without our own code; what a dead process left in the log beside is applied."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return list(connection.iterdump())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each kill is a forked process")
@pytest.mark.parametrize("name", ["new", "store_v9.db"])
def test_a_store_whose_creation_or_upgrade_is_killed_at_any_statement_is_as_before(tmp_path: Path, name: str) -> None:
    path = tmp_path / "store.db"
    for copy in (path, tmp_path / "at_once.db"):
        if name == "new":
            copy.touch()
        else:
            shutil.copy(ASSETS / name, copy)
    # First one that lives, after which the processes that are forked from this one have all that an upgrade imports.
    open_store(tmp_path / "at_once.db").close()
    before = dump(path)
    number = 0
    while die(lambda: lambda: open_store(path).close(), number):
        assert dump(path) == before, number
        number += 1
    assert number > 10, "there is something to be killed in"
    assert dump(path) == dump(tmp_path / "at_once.db") != before


def tables(location: str) -> dict[str, list[str]]:
    """All rows but their numbers and times, and those that say who works on the store; read without our own code."""
    found = {}
    with sql(location) as connection:
        for table in (one for one in metadata.sorted_tables if one.name not in ("leases", "environments")):
            columns = [column for column in table.c if not column.name.endswith(("_at", "id"))]
            found[table.name] = sorted(map(repr, connection.execute(select(*columns))))
    return found


def left(location: str, copy: Path) -> dict[str, list[str]]:
    """What the death of a process that writes a store now would leave: its files as they are, or what is committed."""
    if "://" in location:
        return tables(location)
    for suffix in ("", "-wal"):
        with suppress(FileNotFoundError):
            shutil.copy(f"{location}{suffix}", f"{copy}{suffix}")
    return tables(str(copy))


@pytest.mark.parametrize("change", ["import", "judge", "begin", "delete"])
def test_a_change_of_a_store_that_is_killed_at_any_statement_has_happened_or_not(
    location: str, tmp_path: Path, change: str
) -> None:
    """Both studies of a table with two questions are kept, or none."""
    names = ("baseline", "norm=none")
    moved, runs, asked = tmp_path / "moved.zip", tmp_path / "runs.csv", tmp_path / "asked.yaml"
    runs.write_text("variant,seed,loss,speed\na,0,2.5,1.5\nb,0,2.5,1.5\n")
    asked.write_text(
        "table: {files: runs.csv}\nbaseline: a\nmargin: 0.1\ndirection: lower\nquestions: {loss: {}, speed: {}}\n"
    )
    with open_store(tmp_path / "other.db") as other:
        begin(other, names, 2, "moved")
        for seed in range(2):
            other.record_outcome(outcome("baseline", seed), HERE)
        other.export_study("moved", moved)
    judged = judge_files(read_description(asked), tmp_path, "runs.csv")
    changes: dict[str, Callable[[Store], object]] = {
        "import": lambda store: store.import_study(moved),
        "judge": lambda store: keep(judged, store, "judged"),
        "begin": lambda store: begin(store, ("baseline", "other"), 3, "mine"),
        "delete": lambda store: store.delete_study("mine"),
    }
    found: list[object] = []
    with open_store(location) as store:
        begin(store, names, 2, "mine")
        store.record_outcome(outcome("baseline", 0), HERE)
        store.record_outcome(outcome("baseline", 1, TrialState.FAILED), HERE)
        start(store, "norm=none", 1)
        before = tables(location)

        def look(*_: object) -> None:
            found.append(left(location, tmp_path / f"left{len(found)}.db"))

        event.listen(store._database._engine, "before_cursor_execute", look)
        event.listen(store._database._engine, "commit", look)
        changes[change](store)
    after = tables(location)
    assert len(found) > 5, "there is something to be killed in"
    old = found.count(before)
    assert after != before
    assert found == [before] * old + [after] * (len(found) - old)
    assert change != "delete" or not any(after.values()), "it was the only study"

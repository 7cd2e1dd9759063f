"""`check_store`: what is found wrong with a store, and what is saved of a damaged one."""

from __future__ import annotations

import math
import random
import re
import sqlite3
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Self

import pytest
from sqlalchemy import String, Text
from store_samples import HERE, begin, digest, draft, outcome, planned, variant

from ablate.errors import NotFoundError, StoreError, UnreadableWarning
from ablate.store import Mark, Store, TrialState, WorkerRecord, open_store
from ablate.store.check import _Rows, check_store
from ablate.store.database import limit_reading
from ablate.store.failures import LONGEST_VALUE
from ablate.store.records import DesignTraits, SpeedTiming
from ablate.store.rows import readable
from ablate.store.tables import FreeText, Role, State, metadata


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of two variants with two finished trials each."""
    path = tmp_path / "a.db"
    with open_store(path) as opened:
        begin(opened)
        for name in ("baseline", "no_norm"):
            for seed in range(2):
                opened.record_outcome(outcome(name, seed), HERE)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return path


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(statement)


def test_a_whole_store(store: Path, tmp_path: Path) -> None:
    before = store.read_bytes()
    check = check_store(store, tmp_path / "saved.db")
    assert check.findings == ()
    counts = {table.name: table.whole for table in check.tables}
    assert (counts["trials"], counts["curves"], counts["studies"], counts["study_trials"]) == (4, 20, 1, 4)
    assert all(table.complete and not table.damaged for table in check.tables)
    assert store.read_bytes() == before
    with open_store(store, create=False) as left, open_store(tmp_path / "saved.db", create=False) as right:
        assert left.study("s") == right.study("s")
        keys = [planned.key for planned in left.study("s").planned]
        assert left.trials(keys) == right.trials(keys)
        assert left.curves(keys) == right.curves(keys)
        assert left.recordings(keys[0]) == right.recordings(keys[0]) != ()


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("UPDATE trials SET finished_at = '2025-99-30' WHERE seed = 1", "trials: `finished_at`"),
        ("UPDATE trials SET variant_hash = 'gone' WHERE seed = 1", "a row of trials refers to a row of variants"),
    ],
)
def test_a_row_that_cannot_be_read_is_found_and_all_others_are_saved(
    store: Path, tmp_path: Path, statement: str, finding: str
) -> None:
    change(store, statement)
    check = check_store(store, tmp_path / "saved.db")
    assert any(re.sub(r"the row [0-9a-f']* cannot be read: ", "", line).startswith(finding) for line in check.findings)
    assert check_store(tmp_path / "saved.db").findings == ()
    with open_store(tmp_path / "saved.db", create=False) as saved:
        keys = [digest((name, seed)) for name in ("baseline", "no_norm") for seed in range(2)]
        assert sorted(saved.trials(keys)) == sorted(digest((name, 0)) for name in ("baseline", "no_norm"))
        assert len(saved.curves([keys[0]])[keys[0]]) == 5


UNREAD = {
    *("study_variants.study_id", "study_variants.position", "study_trials.study_id", "study_trials.position"),
    *("study_trials.state", "trials.environment_id", "marks.updated_at", "marks.starred", "study_variants.chosen"),
}
"""Columns that may hold any word: references, which the database checks, what no record has, and truth values."""


def test_every_value_that_cannot_be_read_is_found(store: Path) -> None:
    """In a store with a row in every table: what is no UTF-8, and a word where it is no value."""
    with open_store(store) as opened, opened.lease("s"):
        opened.begin_study(replace(draft("s", "other"), traits=DesignTraits()), [variant("other")], [])
        opened.add_codes({"a": {"kinds": {}}})
        opened.marks.put("study", "s", Mark(note="text"))
        opened.plan_trials("s", [planned("other", 0)])
        opened.record_timing(outcome("baseline", 0).key, SpeedTiming("b", (1.0,), (2.0,), "cpu"))
        opened.record_worker(outcome("baseline", 0).key, WorkerRecord("host", "cpu", 1), 1)
        with closing(sqlite3.connect(store)) as connection:
            connection.execute(f"VACUUM INTO '{store.with_name('whole.db')}'")
    whole = store.with_name("whole.db").read_bytes()
    store.write_bytes(whole)
    check = check_store(store)
    assert check.findings == ()
    assert {table.name for table in check.tables if table.whole} == {*metadata.tables, "alembic_version"}
    found = defaultdict[str, set[tuple[bool, str]]](set)
    for table in metadata.tables.values():
        for column in (one for one in table.columns if one.name != "id"):  # which SQLite checks itself
            words = isinstance(column.type, String | Text | FreeText) and not isinstance(column.type, State | Role)
            for value in ("CAST(x'ff41' AS TEXT)", *(() if words else ("'damaged'",))):
                store.write_bytes(whole)
                change(store, f"UPDATE OR REPLACE {table.name} SET {column.name} = {value}")
                damaged = {one.name: one.damaged for one in check_store(store).tables}[table.name]
                found[value].add((bool(damaged), f"{table.name}.{column.name}"))
    bad, word = found.values()
    assert {column for noticed, column in bad if not noticed} == set()
    assert {column for noticed, column in word if not noticed} == UNREAD


def test_a_page_that_is_lost(store: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(store)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'recordings'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    data = bytearray(store.read_bytes())
    data[(page - 1) * size : page * size] = b"\xaa" * size
    store.write_bytes(data)
    check = check_store(store, tmp_path / "saved.db")
    assert "recordings: some rows cannot be reached" in check.findings
    with open_store(tmp_path / "saved.db", create=False) as saved:
        assert len(saved.trials([planned.key for planned in saved.study("s").planned])) == 4


def test_rows_beyond_a_lost_page_are_read_from_the_end_and_each_once() -> None:
    class Damaged:
        description = (("id",), ("hash",), ("content",))

        def execute(self, statement: str) -> Self:
            self.ids = (5, 4, 2) if "DESC" in statement else (1, 2)
            return self

        def __iter__(self) -> Iterator[tuple[int, str, str]]:
            yield from ((number, "", "") for number in self.ids)
            raise sqlite3.DatabaseError("database disk image is malformed")

    rows = _Rows(Damaged(), "environments")  # type: ignore[arg-type]
    assert [row["id"] for row in rows._readable_rows()] == [1, 2, 5, 4]


def test_what_cannot_be_checked(tmp_path: Path, store: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no such file"):
        check_store(tmp_path / "gone.db")
    (tmp_path / "text").write_text("no database\n" * 100)
    with pytest.raises(StoreError, match="this file cannot be read"):
        check_store(tmp_path / "text")
    with pytest.raises(StoreError, match="this file already exists"):
        check_store(store, store)
    with pytest.raises(StoreError, match=r"readable rows cannot be written; got .*unable to open"):
        check_store(store, tmp_path / "nowhere" / "new.db")
    with pytest.raises(StoreError, match="pg_dump"):
        check_store("postgresql://user:word@host/name")


KEYS = [digest(("baseline", seed)) for seed in range(2)]
READS: list[Callable[[Store], object]] = [
    lambda store: store.studies(),
    lambda store: store.activity(),
    lambda store: store.study("s"),
    lambda store: store.trials(KEYS),
    lambda store: store.curves(KEYS),
]


def readings(path: Path) -> Iterator[Callable[[], object]]:
    for read in READS:

        def opened_and_read(read: Callable[[Store], object] = read) -> None:
            with open_store(path, create=False) as opened:
                read(opened)

        yield opened_and_read


@pytest.mark.parametrize("flips", range(30))
def test_any_damage_is_reported_as_damage(store: Path, flips: int) -> None:
    numbers = random.Random(flips)
    data = bytearray(store.read_bytes())
    for _ in range(60):
        data[numbers.randrange(100, len(data))] = numbers.randrange(256)
    store.write_bytes(data)
    warnings.simplefilter("ignore", UnreadableWarning)
    known = ("cannot be read", "another program", "damaged", "newer version of ablate")
    refusals: list[str] = []
    for read in readings(store):
        try:
            read()
        except StoreError as error:
            refusals.append(str(error))
        except NotFoundError:
            pass  # of a name that is damaged
    assert all(any(words in refusal for words in known) for refusal in refusals)
    try:
        check_store(store)
    except StoreError as error:
        assert "this file cannot be read" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("table", "column"), [("study_variants", "settings"), ("trials", "metrics"), ("studies", "name")]
)
def test_a_damaged_name_in_the_schema_is_reported_as_damage(store: Path, table: str, column: str) -> None:
    change(store, f"ALTER TABLE {table} RENAME COLUMN {column} TO damaged")
    refusals = []
    for read in readings(store):
        try:
            read()
        except StoreError as error:
            refusals.append(str(error))
    assert refusals
    for refusal in refusals:
        assert "the database file is damaged" in refusal
        assert "ablate check-store" in refusal


def test_a_column_that_is_missing_is_found(store: Path) -> None:
    before = store.read_bytes()
    for table in metadata.tables.values():
        for column in table.columns:
            store.write_bytes(before)
            change(store, f"ALTER TABLE {table.name} RENAME COLUMN {column.name} TO damaged")
            assert f"{table.name}: it has no column {column.name}" in check_store(store).findings


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE trials SET metrics = '{\"val_loss'",
        "UPDATE trials SET state = 'finish'",
        "UPDATE trials SET finished_at = '2025-99-30'",
        "UPDATE trials SET reason = CAST(x'ff41' AS TEXT)",
        "UPDATE environments SET content = '{\"device\": 1}'",
    ],
)
def test_a_row_that_cannot_be_read_counts_as_failed_and_names_the_way_out(store: Path, statement: str) -> None:
    change(store, f"{statement} WHERE {'id = 1' if 'environments' in statement else 'seed = 0'}")
    with open_store(store, create=False) as opened:
        with pytest.warns(UnreadableWarning, match=r" of 4 trials cannot be read .*`ablate check-store "):
            trials = opened.trials([planned.key for planned in opened.study("s").planned])
        lost = [trial for trial in trials.values() if trial.unreadable]
        assert len(lost) == (4 if "environments" in statement else 2)
        assert all(trial.state is TrialState.FAILED for trial in lost)
        known = [name for name, value in asdict(lost[0]).items() if value]
        assert known == ["key", "state", "reason", "attempts", "unreadable"]
        with pytest.raises(StoreError, match=r"cannot be read; got .*ablate check-store"):
            opened.trial(lost[0].key)


def test_a_curve_with_a_point_that_cannot_be_read_is_no_curve(store: Path) -> None:
    keys = [digest(("baseline", seed)) for seed in range(2)]
    change(store, f"UPDATE curves SET tokens = -1 WHERE step > 0 AND trial_key = '{keys[0]}'")
    with open_store(store, create=False) as opened, warnings.catch_warnings(action="ignore"):
        curves = opened.curves(keys)
    assert [bool(curves.get(key)) for key in keys] == [False, True]


def test_reading_takes_at_most_a_minute_and_writing_as_long_as_it_needs(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []
    with open_store(store) as opened:
        monkeypatch.setattr("ablate.store.database.limit_reading", lambda connection, seconds: limits.append(seconds))
        opened.trials([digest(("baseline", 0))])
        assert {*limits} == {60}
        limits.clear()
        opened.record_outcome(outcome("baseline", 0), HERE)
        assert math.inf in limits


@pytest.mark.parametrize(("seconds", "ends"), [(-1.0, False), (3600.0, True), (math.inf, True)])
def test_a_statement_is_interrupted_once_its_time_is_over(seconds: float, ends: bool) -> None:
    counts = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) SELECT count(*) FROM n"
    with closing(sqlite3.connect(":memory:")) as connection:
        limit_reading(connection, seconds)
        with nullcontext() if ends else pytest.raises(sqlite3.OperationalError, match="interrupted"):
            assert connection.execute(counts).fetchone() == (100_000,)


@pytest.mark.parametrize("column", ["question", "source"])
def test_a_text_of_a_study_that_is_too_long_is_refused_with_the_way_out(store: Path, column: str) -> None:
    change(store, f"UPDATE studies SET {column} = hex(zeroblob({LONGEST_VALUE // 2 + 1}))")
    with (
        open_store(store, create=False) as opened,
        pytest.raises(StoreError, match=r"longer than 32 MiB.*ablate check-store"),
    ):
        opened.study("s")


@pytest.mark.parametrize(("pid", "fits"), [(0, False), (1, True), (2**31 - 1, True), (2**31, False)])
def test_the_number_of_a_process_is_one_that_a_signal_reaches_alone(pid: int, fits: bool) -> None:
    """A signal to process 0 reaches the group of the process that sends it."""
    assert (readable(WorkerRecord, {"host": "here", "device": "cpu", "pid": pid}) is not None) == fits

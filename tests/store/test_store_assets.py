"""Stores that older versions of ablate wrote are opened and mean the same."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from store_samples import HERE, as_record, description, draft, outcome, planned, sql, variant

from ablate.errors import StoreError, StudyBusyError
from ablate.store import TrialState, open_store
from ablate.store.activity import process_began, processes
from ablate.store.migrations import OLDEST_VERSION, SCHEMA_VERSION
from ablate.store.records import DesignTraits

ASSETS = Path(__file__).parent / "assets"


@pytest.mark.parametrize("name", sorted(path.name for path in ASSETS.glob("store_v*")))
@pytest.mark.parametrize("create", [True, False])
def test_an_older_store(tmp_path: Path, name: str, create: bool) -> None:
    """`store_v9_by_migrations.sql` began as schema 1 and came to schema 9 by migrations that are gone."""
    if name.endswith(".sql"):
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            connection.executescript((ASSETS / name).read_text())
    else:
        shutil.copy(ASSETS / name, tmp_path)
    with open_store(tmp_path / name, create=create) as store:
        assert store.schema_version == SCHEMA_VERSION
        study = store.study("simplify_block")
        assert study.variants == (variant("baseline", norm="rms"), variant("no_norm", norm="none"))
        assert study.planned == tuple(planned(name, seed) for seed in (0, 1) for name in ("baseline", "no_norm"))
        for field in ("question", "source", "space", "text", "objective", "baseline", "trivial"):
            assert getattr(study, field) == getattr(draft(), field)
        finished, diverged = outcome("baseline", 0), outcome("no_norm", 0, TrialState.DIVERGED, points=2)
        keys = [trial.key for trial in study.planned]
        records = store.trials(keys)
        assert list(records) == keys[:3]
        assert records[finished.key] == as_record(finished)
        assert records[diverged.key] == as_record(diverged)
        assert records[keys[2]].state is TrialState.RUNNING
        assert store.curves(keys) == dict.fromkeys(keys, ()) | {
            finished.key: finished.curve,
            diverged.key: diverged.curve,
        }
        assert store.recordings(finished.key) == finished.recordings
        assert {record.code for record in records.values()} == {""}
        assert {(one.key, one.code) for one in store.settled_trials()} == {(diverged.key, ""), (finished.key, "")}
        (summary,) = store.studies()
        assert (summary.variants, summary.planned) == (2, 4)
        assert (summary.finished, summary.diverged, summary.failed, summary.running) == (1, 1, 0, 1)
        assert store.record_outcome(outcome("baseline", 1), HERE)
    open_store(tmp_path / "new.db").close()
    with sql(tmp_path / name) as upgraded, sql(tmp_path / "new.db") as new:
        assert description(upgraded) == description(new)


def test_a_store_of_a_version_before_the_first_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    shutil.copy(ASSETS / "store_v9.db", path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0008'")
    before = path.read_bytes()
    for create in (True, False):
        with pytest.raises(StoreError, match=r"before the first release.*got schema 0008.*--store"):
            open_store(path, create=create)
    assert path.read_bytes() == before


def test_a_store_in_which_an_older_version_runs_a_study_is_not_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "store_v9.db"
    shutil.copy(ASSETS / path.name, path)
    held = [os.getpid(), process_began(os.getpid()), processes()]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        row = "('s', 'token', 'host', ?, ?, '2026-01-01 00:00:00', '2026-01-01 00:00:00', ?)"
        connection.execute(f"INSERT INTO leases VALUES {row}", held)
        before = list(connection.iterdump())
        for create in (True, False):
            with pytest.raises(StudyBusyError, match=rf"older version .* 's' by process {os.getpid()} on host since"):
                open_store(path, create=create)
        assert list(connection.iterdump()) == before
        connection.execute("UPDATE leases SET process_started = 1.0")  # that process is dead, and this one another
    with open_store(path) as store:
        assert store.schema_version == SCHEMA_VERSION


@pytest.mark.parametrize(
    ("kind", "chosen"), [("search", {"a", "b"}), ("simplify", {"b"}), ("grid", set()), ("sweep", set())]
)
def test_designs_whose_name_alone_said_that_they_choose(tmp_path: Path, kind: str, chosen: set[str]) -> None:
    """Before schema 10 reports knew designs by name: a search chose all that its space does not name."""
    path = tmp_path / "store_v9.db"
    shutil.copy(ASSETS / path.name, path)
    space = {"name": "s", "design": {"kind": kind, "seeds": 3}, "variants": {"no_norm": {}}}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE studies SET space = ?", [json.dumps(space)])
        insert = "INSERT INTO study_variants SELECT study_id, ?, ?, variant_hash, ? FROM study_variants LIMIT 1"
        connection.execute(insert, ["a", 2, json.dumps({"norm": "none"})])
        connection.execute(insert, ["b", 3, json.dumps({"norm": "none", "value": "none"})])
    with open_store(path) as store:
        study = store.study("simplify_block")
    assert {variant.name for variant in study.variants if variant.chosen} == chosen
    searches = kind in ("search", "simplify")
    assert study.traits == DesignTraits(searches, not searches, not searches, kind == "sweep", kind == "search")


def test_every_schema_that_is_migrated_has_its_asset() -> None:
    versions = range(int(OLDEST_VERSION), int(SCHEMA_VERSION) + 1)
    assert {f"store_v{version}.db" for version in versions} == {path.name for path in ASSETS.glob("store_v*.db")}

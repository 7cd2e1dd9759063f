"""Stores that cannot be opened, read or written: one clear paragraph each, and nothing harmed."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from json import JSONDecodeError
from pathlib import Path
from unittest.mock import Mock

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from store_samples import HERE, begin, digest, outcome, sql

from ablate.errors import AblateError, NotFoundError, StoreError
from ablate.store import Store, open_store
from ablate.store.database import Database, _write_ahead
from ablate.store.failures import store_errors
from ablate.store.migrations import SCHEMA_VERSION

# Root may write everywhere, so the tests of read-only places run as somebody else.
AS_NOBODY = """
import os, sys
from ablate.errors import AblateError
import ablate.store.migrations, sqlite3, alembic.command
from ablate.store import open_store
sys.path.insert(0, {tests!r})
from store_samples import HERE, begin, outcome
from ablate.store.rows import Mark, readable
readable(Mark, {{}})
if os.geteuid() == 0:
    os.seteuid(65534)
location = sys.argv[1]
try:
{body}
except AblateError as error:
    print(type(error).__name__, error)
"""


def as_nobody(location: Path, body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    script = AS_NOBODY.format(tests=str(Path(__file__).parent), body=lines)
    done = subprocess.run([sys.executable, "-c", script, location], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose parents everybody may enter."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o777)
    yield path
    path.chmod(0o777)
    shutil.rmtree(path)


def make(path: Path) -> None:
    with open_store(path) as store:
        begin(store)
        store.record_outcome(outcome("baseline", 0), HERE)


def refusal(location: str | Path, *, create: bool = True) -> AblateError:
    with pytest.raises(AblateError) as caught:
        open_store(location, create=create)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}"])
def test_a_path_or_a_url(tmp_path: Path, form: str) -> None:
    path = tmp_path / "new folder" / "a.db"
    make(path)
    with open_store(form.format(path), create=False) as store:
        assert store.where == str(path)
        assert store.study("s").name == "s"


def test_a_path_below_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    make(Path("~/a.db"))
    assert (tmp_path / "a.db").exists()


def test_in_memory() -> None:
    with open_store("sqlite://") as store:
        begin(store)
        assert store.study("s").name == "s"


def test_a_missing_store_says_how_to_make_one(tmp_path: Path) -> None:
    error = refusal(tmp_path / "none" / "a.db", create=False)
    assert isinstance(error, NotFoundError)
    assert "ablate study" in str(error)
    assert not (tmp_path / "none").exists()


def test_an_empty_database_is_no_store_until_someone_makes_it_one(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.touch()
    assert isinstance(refusal(path, create=False), NotFoundError)
    assert path.stat().st_size == 0
    make(path)


@pytest.mark.parametrize("create", [True, False])
def test_not_a_database(tmp_path: Path, create: bool) -> None:
    path = tmp_path / "space.yaml"
    path.write_text("name: simplify_block\n" * 100)
    error = refusal(path, create=create)
    assert isinstance(error, StoreError)
    assert "is not a database" in str(error)
    assert path.read_text() == "name: simplify_block\n" * 100
    assert os.listdir(tmp_path) == ["space.yaml"]


def test_a_damaged_store(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    make(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xaa" * (len(whole) - 4096))
    with pytest.raises(StoreError, match="damaged"), open_store(path) as store:
        store.studies()


@pytest.mark.parametrize("version", [f"{int(SCHEMA_VERSION) + 1:04}", "0999", "1000"])
def test_a_newer_schema(location: str, version: str) -> None:
    """Also of a store that was open when another version upgraded it."""
    with open_store(location) as store:
        begin(store)
        with sql(location) as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = :version"), {"version": version})
        uses: list[Callable[[], object]] = [
            store.studies,
            lambda: store.record_outcome(outcome("baseline", 0), HERE),
            lambda: open_store(location),
            lambda: open_store(location, create=False),
        ]
        for use in uses:
            with pytest.raises(StoreError, match=rf"newer version of ablate.*schema {version}.*pip install -U"):
                use()
    with sql(location) as connection:
        assert connection.execute(text("SELECT count(*) FROM trials")).scalar() == 0


@pytest.mark.parametrize("change", ["UPDATE alembic_version SET version_num = '0999'", "DROP TABLE alembic_version"])
def test_a_file_that_is_refused_keeps_every_byte(tmp_path: Path, change: str) -> None:
    """Also the way in which SQLite keeps its journal, which opening a store changes."""
    path = tmp_path / "a.db"
    make(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(change)
        connection.execute("PRAGMA journal_mode = DELETE")
    before = path.read_bytes()
    for create in (True, False):
        refusal(path, create=create)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE notes (id INTEGER)"],
        ["CREATE TABLE alembic_version (version_num TEXT)", "INSERT INTO alembic_version VALUES ('ae1027a6acf')"],
        ["CREATE TABLE alembic_version (version_num TEXT)", "INSERT INTO alembic_version VALUES ('0003')"],
        [
            "CREATE TABLE alembic_version (version_num INTEGER)",
            "INSERT INTO alembic_version VALUES (8)",
            "CREATE TABLE studies (id INTEGER)",
        ],
    ],
)
def test_the_database_of_another_program_is_left_alone(location: str, statements: list[str]) -> None:
    with sql(location) as connection:
        for statement in statements:
            connection.execute(text(statement))
    for create in (True, False):
        assert "another program" in str(refusal(location, create=create))


def test_a_folder(tmp_path: Path) -> None:
    for create in (True, False):
        assert "is a folder" in str(refusal(tmp_path, create=create))


def test_a_path_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert isinstance(refusal(tmp_path / "file" / "deeper" / "a.db"), StoreError)
    assert isinstance(refusal(tmp_path / "file" / "a.db"), StoreError)
    assert isinstance(refusal(tmp_path / "file" / "a.db", create=False), NotFoundError)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_place_where_no_one_may_write() -> None:
    assert "cannot be opened" in str(refusal("/proc/a.db"))


def test_a_read_only_folder_can_be_read_but_not_written(folder: Path) -> None:
    path = folder / "a #1?%20.db"
    make(path)
    folder.chmod(0o555)
    read = "with open_store(location, create=False) as store:\n print(len(store.study('s').planned))\n"
    assert as_nobody(path, read) == "4\n"
    assert os.listdir(folder) == [path.name]
    assert "cannot be" in as_nobody(path, "open_store(location)")
    assert "read-only" in as_nobody(path, read + " begin(store)")
    assert as_nobody(folder / "b.db", "open_store(location)").startswith("StoreError")


def test_a_read_only_file_in_a_folder_that_is_not(folder: Path) -> None:
    path = folder / "a.db"
    make(path)
    path.chmod(0o444)
    read = "with open_store(location, create=False) as store:\n print(store.studies()[0].finished)"
    assert as_nobody(path, read) == "1\n"
    assert "read-only" in as_nobody(path, "open_store(location)")


def test_a_folder_that_one_may_not_enter(folder: Path) -> None:
    make(folder / "a.db")
    folder.chmod(0o700)
    for create in (True, False):
        output = as_nobody(folder / "a.db", f"open_store(location, create={create})")
        assert output.startswith("StoreError")
        assert "Permission denied" in output


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    make(path)
    database = Database(path, create=True)
    with Store(database) as store:
        # SQLite says the same when a file may not grow as when the disk is full.
        with database.reading() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 1")
        failed = outcome("baseline", 1, points=1000)
        with pytest.raises(StoreError, match="no space is left") as caught:
            store.record_outcome(failed, HERE)
        assert "same command again" in str(caught.value)
        assert store.trials([failed.key]) == {}
        with database.reading() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
        assert store.record_outcome(failed, HERE)
        assert store.curves([failed.key])[failed.key] == failed.curve


def test_a_locked_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    make(path)
    monkeypatch.setattr("ablate.store.database._LOCK_TIMEOUT", 0.05)
    browser = sqlite3.connect(path, isolation_level=None)
    browser.execute("BEGIN IMMEDIATE")
    with open_store(path, create=False) as reader:
        assert reader.studies()[0].finished == 1  # Reading still works.
        with pytest.raises(StoreError, match="locked"):
            reader.record_outcome(outcome("baseline", 1), HERE)
    assert "locked" in str(refusal(path))
    browser.close()
    make(path)


def test_the_switch_to_write_ahead_waits_for_other_processes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(code: int) -> sqlite3.OperationalError:
        error = sqlite3.OperationalError("no")
        error.sqlite_errorcode = code
        return error

    busy, full = refused(sqlite3.SQLITE_BUSY), refused(sqlite3.SQLITE_FULL)
    for seconds, answers, tries in ((60, [busy, busy, None], 3), (60, [busy, full], 2), (-1, [busy, None], 1)):
        monkeypatch.setattr("ablate.store.database._LOCK_TIMEOUT", seconds)
        connection = Mock(execute=Mock(side_effect=answers))
        with nullcontext() if answers[tries - 1] is None else pytest.raises(sqlite3.OperationalError):
            _write_ahead(connection)
        assert connection.execute.call_count == tries


def refused_by_database(code: str, said: str) -> OperationalError:
    original = sqlite3.OperationalError(said)
    original.sqlite_errorname = code
    return OperationalError("SELECT 1", {}, original)


@pytest.mark.parametrize(
    "error",
    [
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "it says why"),
        JSONDecodeError("it says why", "", 0),
        ImportError("it says why\nmore"),
        OSError(errno.EACCES, "it says why"),
        refused_by_database("", "Could not decode to UTF-8 column 'a'"),
        *(
            refused_by_database(name, "it says why\nmore")
            for name in dir(sqlite3)
            if re.fullmatch("SQLITE_[A-Z]+", name)
        ),
        refused_by_database("no code", "it says why"),
    ],
    ids=lambda error: getattr(getattr(error, "orig", None), "sqlite_errorname", type(error).__name__),
)
def test_what_the_system_says_is_repeated_with_a_way_out(error: Exception) -> None:
    with pytest.raises(StoreError) as raised, store_errors("here"):
        raise error
    assert raised.value.where == "here"
    assert re.search(r"it says why(?!\n)|not UTF-8", raised.value.got or "")
    assert raised.value.remedy


@pytest.mark.parametrize(
    "url", ["mysql://me:secret@host/name", "oracle+x://me:secret@host", "://", "postgresql://me:secret@host:port/name"]
)
def test_a_url_that_cannot_be_a_store(url: str) -> None:
    error = refusal(url)
    assert "postgresql://USER@HOST/NAME" in str(error)
    assert "secret" not in str(error)


@pytest.mark.parametrize(
    ("form", "driver", "said"),
    [
        ("postgresql", "psycopg", "needs psycopg, which is not installed. Run"),
        ("postgres", "psycopg", "needs psycopg, which is not installed. Run"),
        ("postgresql+psycopg2", "psycopg2", "the driver of this database cannot be imported"),
    ],
)
def test_a_missing_driver_leads_to_the_supported_one(
    form: str, driver: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    message = str(refusal(f"{form}://me:secret@host/name"))
    assert said in message
    assert "pip install 'ablate-blocks[postgres]'" in message
    assert "secret" not in message


def test_a_server_that_does_not_answer() -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    message = str(refusal("postgresql://me:secret@127.0.0.1:1/name"))
    assert "the database failed" in message
    assert "secret" not in message


@pytest.mark.parametrize("way", ["deleted", "replaced", "replaced with its log", "with its folder"])
def test_a_deleted_store_is_noticed_at_the_next_write_and_nothing_is_lost(tmp_path: Path, way: str) -> None:
    path = tmp_path / "studies" / "mine" / "a.db"
    with open_store(path) as store:
        begin(store)
        store.record_outcome(outcome("baseline", 0), HERE)
        if way.startswith("replaced"):
            ends = ("", "-wal") if way == "replaced with its log" else ("",)
            with open_store(tmp_path / "other.db") as other:
                begin(other, study="another")
                if len(ends) == 2:  # while it is open: what was written is in the log alone
                    for end in ends:
                        shutil.copy(tmp_path / f"other.db{end}", tmp_path / f"copy.db{end}")
            for end in ends:
                os.replace(tmp_path / f"{'copy' if len(ends) == 2 else 'other'}.db{end}", f"{path}{end}")
        elif way == "deleted":
            path.unlink()
        else:
            shutil.rmtree(tmp_path / "studies")
        with pytest.raises(StoreError, match=r"deleted or replaced.*recorded data is in .*a\.rescued-1\.db"):
            store.record_outcome(outcome("baseline", 1), replace(HERE, host="another machine"))
        store.record_outcome(outcome("no_norm", 0), HERE)  # what a driver does before it ends
    with open_store(path.with_name("a.rescued-1.db"), create=False) as saved:
        keys = [digest((name, seed)) for name, seed in (("baseline", 0), ("baseline", 1), ("no_norm", 0))]
        assert sorted(saved.trials(keys)) == sorted(keys)
        assert all(len(curve) == 5 for curve in saved.curves(keys).values())
        assert [study.name for study in saved.studies()] == ["s"]
    assert path.exists() == way.startswith("replaced")
    if path.exists():
        with open_store(path, create=False) as other:
            assert [study.name for study in other.studies()] == ["another"]

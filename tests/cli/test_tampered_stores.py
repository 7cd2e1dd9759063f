"""Stores whose values or schema somebody changed: each command says what it cannot read, and goes on with the rest."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from cli_runs import Workplace

from benchmarks.hostile import run_case, tiny_store
from benchmarks.hostile_cases import Case, around

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a case is a forked process")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> bytes:
    """A study of nine trials; what the commands import is here, for the processes that are forked from this one."""
    made = tiny_store(tmp_path_factory.mktemp("tiny"))
    place = Workplace(tmp_path_factory.mktemp("called"), cache)
    place.store.parent.mkdir()
    place.store.write_bytes(made)
    for command in ("show tiny", "report tiny", "claims tiny", "check-store", "list", "status"):
        assert place.call(*command.split()).code == 0
    return made


def changed(store: bytes, script: str, *values: object) -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(store)
        connection.execute("PRAGMA foreign_keys = OFF")
        if values:
            connection.execute(script, values)
        else:
            connection.executescript(script)
        connection.commit()
        return connection.serialize()


def answer(store: bytes, folder: Path, *line: str, code: int = 0) -> tuple[str, str]:
    """What a command prints and says, which ends with this exit code and leaves the store as it is."""
    case = Case("value", line, around(store))
    ending = run_case(case, folder, seconds=120.0)
    assert ending.verdict(case) == "tried", ending.error
    assert ending.code == code, ending.error
    return (folder / "stdout").read_text(), ending.error


TRIAL = "UPDATE trials SET {} = ? WHERE rowid = (SELECT rowid FROM trials ORDER BY rowid LIMIT 1 OFFSET {})"
LAST = TRIAL.format("{}", 8)
DEEP = "[" * 5000 + "]" * 5000


@pytest.mark.parametrize(
    "values",
    [
        {"metrics": ['{"val_loss": "2.5"}', '{"val_loss": [1]}', '{"val_loss": null}', '{"val_loss": 1e308}',
                     f'{{"val_loss": {"9" * 400}}}', f'{{"val_loss": {DEEP}}}']},
        {"worker": ['{"host": "h", "device": "d", "pid": -3}'], "seconds": [1e308], "steps": ["many"],
         "state": ["done"], "reason": [b"\xff\x41", "x" * (40 << 20)], "finished_at": ["0001-01-01 00:00:00"]},
    ],
    ids=["metrics", "others"],
)  # fmt: skip
def test_a_trial_that_cannot_be_read_is_counted(values: dict[str, list[object]], store: bytes, tmp_path: Path) -> None:
    """Each value is that of another trial."""
    tampered, count = store, 0
    for column, several in values.items():
        for value in several:
            tampered, count = changed(tampered, TRIAL.format(column, count), value), count + 1
    _, said = answer(tampered, tmp_path / "show", "show", "tiny")
    assert f"Warning: {count} of 9 trials cannot be read" in said
    assert "`ablate check-store" in said
    found, _ = answer(tampered, tmp_path / "check", "check-store", code=2)
    for column, several in values.items():
        assert found.count(f"`{column}") == len(several), found


@pytest.mark.parametrize("command", ["report", "claims"])
def test_every_command_that_reads_trials_counts_those_that_it_cannot_read(
    command: str, store: bytes, tmp_path: Path
) -> None:
    _, said = answer(changed(store, LAST.format("steps"), "many"), tmp_path / command, command, "tiny")
    assert "Warning: 1 of 9 trials cannot be read" in said


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("objective", '{"metric": "val_loss", "direction": "minimize", "margin": 5e-324}', "`objective.margin`"),
        ("objective", '{"metric": "val_loss", "direction": "minimize", "margin": Infinity}', "`objective.margin`"),
        ("objective", '{"metric": "val_loss", "direction": "minimize", "margin": -1}', "`objective.margin`"),
        ("baseline", "another", "`baseline`"),
        ("trivial", '{"unigram": {"val_loss": "6"}}', "`trivial.unigram.val_loss`"),
        ("space", DEEP, "`space`"),
        ("space", '{"design": 3}', "`space`"),
        ("declared_before", "[3]", "`declared_before.0`"),
    ],
)
def test_a_study_that_cannot_be_read_is_refused(
    column: str, value: str, problem: str, store: bytes, tmp_path: Path
) -> None:
    tampered = changed(store, f"UPDATE studies SET {column} = ?", value)
    _, said = answer(tampered, tmp_path / "show", "show", "tiny", code=2)
    assert "the study 'tiny' cannot be read" in said
    assert problem in said
    listed, _ = answer(tampered, tmp_path / "list", "list")
    assert "tiny" in listed


def test_a_comparison_refuses_a_study_that_cannot_be_read(store: bytes, tmp_path: Path) -> None:
    tampered = changed(store, "UPDATE studies SET baseline = ?", "another")
    _, said = answer(tampered, tmp_path / "diff", "diff", "tiny/baseline", "tiny/norm=none", code=2)
    assert "the study 'tiny' cannot be read" in said


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT other.* FROM other, n"


@pytest.mark.parametrize("command", ["show", "report", "claims"])
def test_a_study_without_variants_is_named(command: str, store: bytes, tmp_path: Path) -> None:
    lost = changed(store, "UPDATE studies SET id = -9223372036854775808")
    _, said = answer(lost, tmp_path / command, command, "tiny", code=2)
    assert "this study has no variants" in said


@pytest.mark.parametrize(
    "script",
    [
        *(f"ALTER TABLE {table} RENAME TO other; CREATE VIEW {table} AS {ENDLESS}" for table in ("studies", "trials")),
        "CREATE VIEW aside AS SELECT 1",
        "CREATE TRIGGER t AFTER UPDATE ON trials BEGIN DELETE FROM trials; END",
        "ALTER TABLE trials ADD COLUMN large AS (zeroblob(900000000))",
    ],
)
def test_a_schema_that_is_not_ours_is_refused(script: str, store: bytes, tmp_path: Path) -> None:
    _, said = answer(changed(store, script), tmp_path / "show", "show", "tiny", code=2)
    assert "the schema of this file is not that of a store" in said


@pytest.mark.parametrize("command", ["list", "status", "check-store"])
def test_every_command_refuses_a_schema_that_is_not_ours(command: str, store: bytes, tmp_path: Path) -> None:
    tampered = changed(store, "CREATE VIEW aside AS SELECT 1")
    _, said = answer(tampered, tmp_path / command, command, code=2)
    assert "the schema of this file is not that of a store" in said


def test_a_curve_with_a_point_that_cannot_be_read_is_counted_and_not_used(store: bytes, tmp_path: Path) -> None:
    """What the other points say is not what the curve says: its course, or its steps to the baseline's loss."""
    tampered, point = store, "(SELECT trial_key, max(step) FROM curves GROUP BY trial_key LIMIT 1 OFFSET {})"
    for number, (column, value) in enumerate(
        (("val_loss", "low"), ("val_loss", 1e308), ("seconds", "-1"), ("tokens", 0.5))
    ):
        change = f"UPDATE curves SET {column} = ? WHERE (trial_key, step) = {point.format(number)}"
        tampered = changed(tampered, change, value)
    _, said = answer(tampered, tmp_path / "show", "show", "tiny")
    assert "Warning: the curves of 4 of 9 trials cannot be read" in said


def test_a_run_trains_again_what_cannot_be_read(store: bytes, tmp_path: Path) -> None:
    tampered = changed(store, LAST.format("metrics"), '{"val_loss": "2.5"}')
    place = tmp_path / "work"
    case = Case("value", ("resume", "tiny"), around(tampered))
    ending = run_case(case, tmp_path, seconds=300.0)
    assert ending.code == 0, ending.error
    assert "1 of 9 trials cannot be read" in ending.error
    with closing(sqlite3.connect(place / "studies" / "ablate.db")) as connection:
        kinds = connection.execute("SELECT json_type(metrics, '$.val_loss'), state FROM trials").fetchall()
    assert kinds == [("real", "finished")] * 9

"""Commands on spaces and stored studies: new, report, delete, rename and resume."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet
import pytest
from cli_runs import ABLATE, Finished, Workplace

from ablate.errors import ArgumentError, SpaceError
from ablate.spec.named import DEFAULT_START, JUDGE_START, starts, write_space
from ablate.spec.reading import load_space
from ablate.store import open_store
from ablate.tables.answering import answer_of_table, read_reports
from ablate.tables.description import read_description
from ablate.tables.judging import judge_files
from ablate.trained.weights import weights_file


@pytest.fixture
def two(place: Workplace) -> Workplace:
    """Two studies that share their three trials of seed 0; the second has three more."""
    assert place.call("study", place.space("first", seeds=1), "--workers", "1").code == 0
    assert place.call("study", place.space("second", seeds=2), "--workers", "1").code == 0
    return place


def test_deleting_keeps_the_trials_that_another_study_uses(two: Workplace) -> None:
    before = two.trials("finished")
    (two.folder / "studies" / "round.db").symlink_to("round.db")  # beside a store may be anything
    asked = two.call("delete", "second")
    assert asked.code == 2
    assert "with 3 trials. 3 trials that other studies use will stay" in asked.err
    assert two.trials("finished") == before
    deleted = two.call("delete", "second", "--yes", "--json")
    assert json.loads(deleted.out) == {"deleted": "second", "trials": 3, "kept": 3}
    after = two.trials("finished")
    assert len(after) == 3
    assert after.items() <= before.items()
    assert two.rows("SELECT count(*) FROM curves WHERE trial_key NOT IN (SELECT key FROM trials)") == [(0,)]
    assert two.call("show", "first").code == 0
    assert two.call("delete", "first", "--yes").code == 0
    for table in ("studies", "trials", "curves", "variants", "study_trials", "study_variants"):
        assert two.rows(f"SELECT count(*) FROM {table}") == [(0,)], table
    assert two.call("check-store").code == 0
    assert two.call("delete", "first", "--yes").code == 2


def test_a_renamed_study_continues_under_its_new_name_with_its_data_elsewhere(two: Workplace) -> None:
    assert two.call("rename", "first", "second").code == 2, "that name is taken"
    assert two.call("rename", "first", "a/b").code == 2
    before = two.trials("finished")
    assert two.call("rename", "first", "third").code == 0
    assert [study["study"] for study in json.loads(two.call("list", "--json").out)] == ["second", "third"]
    (two.folder / "text").rename(two.folder / "moved")
    lost = two.call("resume", "third", "--seeds", "3", "--workers", "1")
    assert lost.code == 2
    assert "`--data file:PATH`" in lost.err
    more = two.call("resume", "third", "--seeds", "3", "--data", "file:moved", "--workers", "1", "--json")
    assert (more.code, more.last_object["study"], more.last_object["trained"]) == (0, "third", 3), more
    key = next(iter(before))
    assert two.call("reproduce", key, "--data", "file:moved").code == 0
    (two.folder / "moved" / "more.txt").write_text("another text " * 500)
    other = two.call("resume", "third", "--data", "file:moved", "--workers", "1")
    assert other.code == 2
    assert "this is not the data of the stored trials" in other.err


@pytest.mark.parametrize("command", [["resume", "tinny"], ["rename", "tinny", "x"], ["delete", "tinny", "--yes"]])
def test_a_study_that_is_not_there(command: list[str], done: tuple[Workplace, Finished], place: Workplace) -> None:
    failed = done[0].call(*command)
    assert failed.code == 2
    assert "there is no study 'tinny'" in failed.err
    nowhere = place.call(*command)
    assert (nowhere.code, "there is no store here yet" in nowhere.err) == (2, True)
    assert not list(place.folder.rglob("*.db"))


def test_a_run_stops_at_its_limit_and_the_same_command_continues(place: Workplace) -> None:
    command = ("study", place.space(seeds=1), "--workers", "1", "--pack", "1", "--max-trials", "2", "--json")
    first = place.call(*command)
    assert (first.code, first.last_object["interrupted"], first.last_object["trained"]) == (130, True, 2)
    assert "Stopped with 2 of 3 trials done" in first.err
    second = place.call(*command)
    assert (second.code, second.last_object["trained"]) == (0, 1)
    assert set(second.last_object["verdicts"]) == {"values=identity", "norm=none"}
    asked = place.call("gate", "tiny", "--variant", "norm=none", "--json")
    assert (asked.code, json.loads(asked.out)["passed"]) == (3, "undecided")
    found = json.loads(place.call("ideas", "norm", "--json").out)
    assert [(idea["variant"], idea["outcome"]) for idea in found["ideas"]] == [("norm=none", "undecided")]
    assert place.call("study", "tiny.yaml", "--max-seconds", "0", "--store", "other.db").code == 130


def test_numbers_agree_with_show(done: tuple[Workplace, Finished]) -> None:
    shown = json.loads(done[0].call("show", "tiny", "--json").out)
    reported = json.loads(done[0].call("report", "tiny", "--format", "json").out)
    assert {key: reported[key] for key in shown} == shown
    rows = list(csv.DictReader(io.StringIO(done[0].call("report", "tiny", "--format", "csv").out)))
    means = [float(row["mean"]) for row in rows]
    assert means == [variant["metrics"]["val_loss"]["mean"] for variant in shown["variants"]]
    stored = done[0].rows("SELECT SUM(flops), SUM(seconds), COUNT(*) FROM trials")[0]
    cost = reported["cost"]
    assert (cost["flops"], cost["seconds"], cost["trials"]) == pytest.approx(stored)


def test_the_files_are_named(done: tuple[Workplace, Finished]) -> None:
    place = done[0]
    called = place.call("report", "tiny", "--format", "html", "--out", "paper")
    assert (called.code, called.err) == (0, "")
    written = called.out.split()
    assert written[0] == "paper/tiny.html"
    assert {"paper/tiny_forest.svg", "paper/tiny_loss_flops.png"} <= set(written)
    assert all((place.folder / path).stat().st_size for path in written)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny", "--format", "pdf"], "--format: there is no such format of a report"),
        (["tniy"], "tniy"),
        (["tiny", "--out", "tiny.yaml"], "the report cannot be written"),
    ],
)
def test_mistakes_are_one_paragraph(done: tuple[Workplace, Finished], arguments: list[str], message: str) -> None:
    called = done[0].call("report", *arguments)
    assert (called.code, called.out) == (2, "")
    assert message in called.err
    assert "Traceback" not in called.err


def test_parquet_goes_into_a_file_or_a_pipe(done: tuple[Workplace, Finished]) -> None:
    place = done[0]
    piped = place.shell(f"{ABLATE} report tiny --format parquet > piped.parquet")
    assert (piped.code, piped.err) == (0, "")
    assert place.call("report", "tiny", "--format", "parquet", "--out", "table").out.split() == ["table/tiny.parquet"]
    tables = [pyarrow.parquet.read_table(place.folder / name) for name in ("piped.parquet", "table/tiny.parquet")]
    assert tables[0].equals(tables[1])
    assert tables[0].column("variant").to_pylist()[0] == "baseline"


@pytest.mark.parametrize("name", ["my_question", "null", "true", "007", "1e3", "0x1F", "2026-01-01", "a.b-c"])
def test_a_new_space_can_be_read_and_has_the_name_that_was_asked_for(name: str, tmp_path: Path) -> None:
    path = write_space(name, tmp_path)
    assert path.name == f"{name}.yaml"
    assert load_space(path).name == name


@pytest.mark.parametrize("name", ["ä", "a b", "a/b", ".a", "", "a" * 101])
def test_a_name_that_no_space_can_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match="this is not a name for a space"):
        write_space(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_every_starting_point_is_a_short_valid_space_that_begins_with_its_question(tmp_path: Path) -> None:
    assert len(starts()) >= 10
    assert next(iter(starts())) == DEFAULT_START
    for start, file in starts().items():
        lines = file.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 30, start
        assert lines[0].startswith("# "), start
        assert "?" in lines[0], start
        path = write_space(f"own_{start}", tmp_path, start)
        if start == JUDGE_START:
            judged = judge_files(read_description(path, {}), tmp_path, "own")
            groups = answer_of_table(judged, read_reports(judged)).groups
            assert {group.key: [row.variant for row in group.rows] for group in groups} == {
                "as good": ["no_norm"],
                "worse": ["no_skip"],
            }
        else:
            assert load_space(path).name == f"own_{start}"
    with pytest.raises(ArgumentError, match="there is no such starting point"):
        write_space("another", tmp_path, "nothing")


def test_deleting_keeps_weights_that_another_store_of_the_folder_has(two: Workplace) -> None:
    beside = two.store.with_name("beside.db")
    keys = list(two.trials("finished"))
    assert two.call("export-study", "first", "--out", "first.zip").code == 0
    assert two.call("import-study", "first.zip", "--store", str(beside)).code == 0
    weights = {key: Path(weights_file(key, str(two.store))) for key in keys}
    for file in weights.values():
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"weights")
    for study in ("second", "first"):
        assert two.call("delete", study, "--yes").code == 0
    with open_store(beside) as store:
        kept = {planned.key for planned in store.study("first").planned}
    assert {key for key, file in weights.items() if file.exists()} == kept
    assert two.call("delete", "first", "--yes", "--store", str(beside)).code == 0
    assert not any(file.exists() for file in weights.values())

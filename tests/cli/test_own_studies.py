"""Delete, rename and resume a stored study."""

from __future__ import annotations

import json

import pytest
from cli_runs import Finished, Workplace


@pytest.fixture
def two(place: Workplace) -> Workplace:
    """Two studies that share their three trials of seed 0; the second has three more."""
    assert place.call("study", place.space("first", seeds=1), "--workers", "1").code == 0
    assert place.call("study", place.space("second", seeds=2), "--workers", "1").code == 0
    return place


def test_deleting_keeps_the_trials_that_another_study_uses(two: Workplace) -> None:
    before = two.trials("finished")
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
def test_a_study_that_is_not_there(command: list[str], done: tuple[Workplace, Finished]) -> None:
    failed = done[0].call(*command)
    assert failed.code == 2
    assert "there is no study 'tinny'" in failed.err


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

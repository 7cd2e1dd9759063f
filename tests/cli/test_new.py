"""`ablate new`: what it writes, the tool reads, whatever the name."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.cli.starting_points import DEFAULT, JUDGE, starts, write_space
from ablate.errors import ArgumentError, SpaceError
from ablate.spec.reading import load_space
from ablate.tables.answering import answer_of_table, read_reports
from ablate.tables.description import read_description
from ablate.tables.judging import judge_files


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
    assert next(iter(starts())) == DEFAULT
    for start, file in starts().items():
        lines = file.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 30, start
        assert lines[0].startswith("# "), start
        assert "?" in lines[0], start
        path = write_space(f"own_{start}", tmp_path, start)
        if start == JUDGE:
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

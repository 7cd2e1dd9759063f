"""`ablate new`: what it writes, the tool reads, whatever the name."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.errors import SpaceError
from ablate.render.terminal.template import write_template
from ablate.spec.reading import load_space


@pytest.mark.parametrize("name", ["my_question", "null", "true", "007", "1e3", "0x1F", "2026-01-01", "a.b-c"])
def test_a_new_space_can_be_read_and_has_the_name_that_was_asked_for(name: str, tmp_path: Path) -> None:
    path = write_template(name, tmp_path)
    assert path.name == f"{name}.yaml"
    assert load_space(path).name == name


@pytest.mark.parametrize("name", ["ä", "a b", "a/b", ".a", "", "a" * 101])
def test_a_name_that_no_space_can_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match="this is no name for a space"):
        write_template(name, tmp_path)
    assert not list(tmp_path.iterdir())

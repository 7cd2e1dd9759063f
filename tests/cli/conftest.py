"""Folders to run commands in."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import Finished, Workplace


@pytest.fixture
def place(tmp_path: Path, cache: Path) -> Workplace:
    """An empty folder but for a text corpus."""
    return Workplace(tmp_path, cache)


@pytest.fixture(scope="session")
def done(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> tuple[Workplace, Finished]:
    """A study that ran to its end, to be read but not changed, and what it printed."""
    place = Workplace(tmp_path_factory.mktemp("done"), cache)
    return place, place.run("study", place.space(seeds=3))

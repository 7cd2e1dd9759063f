"""Folders to run commands in."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from cli_runs import Finished, Workplace, wait_for
from filelock import FileLock

Call = Callable[..., Finished]


@pytest.fixture
def place(tmp_path: Path, cache: Path) -> Workplace:
    """An empty folder but for a text corpus."""
    return Workplace(tmp_path, cache)


@pytest.fixture
def call(place: Workplace) -> Call:
    """The command line within this process, in the folder of `place`."""
    return place.call


@pytest.fixture(scope="session")
def done(tmp_path_factory: pytest.TempPathFactory, shared_folder: Path, cache: Path) -> tuple[Workplace, Finished]:
    """A study that ran to its end, to be read but not changed, and what it printed.

    The first process of the test run that asks for it trains it; each works with a copy of its own.
    """
    trained, printed = shared_folder / "done", shared_folder / "done.json"
    with FileLock(shared_folder / "done.lock"):
        if not printed.exists():
            trained.mkdir()
            first = Workplace(trained, cache)
            printed.write_text(json.dumps(asdict(wait_for(first.fork("study", first.space(seeds=3))))))
    copy = tmp_path_factory.mktemp("done")
    place = Workplace(copy, cache)
    shutil.copytree(trained, copy, dirs_exist_ok=True)
    return place, Finished(**json.loads(printed.read_text()))


@pytest.fixture
def trained(done: tuple[Workplace, Finished], tmp_path: Path) -> Workplace:
    """A copy of that study, to be changed."""
    place = Workplace(tmp_path, done[0].cache)
    shutil.copytree(done[0].folder, tmp_path, dirs_exist_ok=True)
    return place

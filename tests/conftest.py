"""What all tests share."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import postgres
import pytest

from ablate.cores import available_cores

# As many processes run tests as there are cores; and sums in a fixed order give the same numbers every time. Torch
# reads this when it is imported, and the processes that tests start inherit it.
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave modules and tests out of garbage collection, which Hypothesis and Streamlit call once an example or run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_xdist_auto_num_workers() -> int:
    """One process more than cores, because some always wait for a browser, for Ray or for a command to end."""
    return available_cores() + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the file that takes longest, so that no process of the test run is left with it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("ray") is None)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this test run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def cache(shared_folder: Path) -> Path:
    """A cache folder for prepared data, shared by the whole test run so that each corpus is prepared once."""
    return shared_folder / "cache"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a database on a server that runs as long as the session."""
    with postgres.server() as url:
        yield url

"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest


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

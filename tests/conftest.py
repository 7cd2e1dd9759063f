"""What all tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder for prepared data, shared by the whole session so that each corpus is prepared once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a database on a server that runs as long as the session."""
    with postgres.server() as url:
        yield url

"""The backends that the contract of a store is tested on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest

from ablate.store import Store, open_store


@pytest.fixture(params=["sqlite", "postgres"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a store can be made: a file, or a schema of its own on a server."""
    if request.param == "sqlite":
        yield str(tmp_path / "store.db")
        return
    with postgres.schema(request.getfixturevalue("postgres_server")) as inside:
        yield inside


@pytest.fixture
def store(location: str) -> Iterator[Store]:
    with open_store(location) as opened:
        yield opened

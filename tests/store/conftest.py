"""The backends that the contract of a store is tested on."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from ablate.store import Store, open_store

POSTGRES = os.environ.get("ABLATE_TEST_POSTGRES")


@pytest.fixture(params=["sqlite", "postgres"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a store can be made: a file, or a schema of its own on a server."""
    if request.param == "sqlite":
        yield str(tmp_path / "store.db")
        return
    if POSTGRES is None:
        pytest.skip("ABLATE_TEST_POSTGRES holds no URL of a PostgreSQL database")
    schema = f"test_{uuid.uuid4().hex}"
    url = make_url(POSTGRES).set(drivername="postgresql+psycopg")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    yield url.update_query_dict({"options": f"-csearch_path={schema}"}).render_as_string(hide_password=False)
    with engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
    engine.dispose()


@pytest.fixture
def store(location: str) -> Iterator[Store]:
    with open_store(location) as opened:
        yield opened

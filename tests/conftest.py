"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder for prepared data, shared by the whole session so that each corpus is prepared once."""
    return tmp_path_factory.mktemp("cache")

"""Opening a store imports as little as possible, and prints nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from store_samples import begin

from ablate.store import open_store
from ablate.store.migrations import SCHEMA_VERSION

ASSETS = Path(__file__).parent / "assets"
OPEN = """
import logging, sys
from ablate.store import open_store
with open_store(sys.argv[1]) as store:
    store.studies()
assert not logging.getLogger().handlers
print(*sorted({"alembic", "torch", "pydantic", "scipy"} & set(sys.modules)))
"""


def modules_after_opening(path: Path) -> str:
    command = [sys.executable, "-W", "error", "-c", OPEN, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


def test_alembic_is_imported_only_to_migrate(tmp_path: Path) -> None:
    assert modules_after_opening(tmp_path / "new.db") == ""
    assert modules_after_opening(tmp_path / "new.db") == ""
    old = Path(shutil.copy(ASSETS / "store_v9.db", tmp_path))
    assert modules_after_opening(old) == "alembic"
    assert modules_after_opening(old) == ""


def test_the_newest_migration_is_the_schema_version() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    import ablate.store.migrations as package

    config = Config()
    config.set_main_option("script_location", str(Path(package.__file__).parent))
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_heads() == [SCHEMA_VERSION]


def test_making_a_store_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with open_store(tmp_path / "a.db") as store:
        begin(store)
    assert capfd.readouterr() == ("", "")

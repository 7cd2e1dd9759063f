"""Brings the tables of a database to the newest schema. Alembic is imported only when there is something to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection

# The revision of the newest file in `versions`. Revisions are four digits that count up.
SCHEMA_VERSION = "0009"


def upgrade(connection: Connection) -> None:
    """Run all migrations that a database still lacks, inside the caller's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    # Alembic reads options by the rules of configparser, where a percent sign begins a reference.
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    command.upgrade(config, "head")

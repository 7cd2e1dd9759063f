"""Upgrades the tables of a database to the current schema. Alembic is imported only if an upgrade is needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection

# Revision of the latest file in `versions`. Revisions are consecutive four-digit numbers.
SCHEMA_VERSION = "0011"
OLDEST_VERSION = "0009"
"""The oldest one from which there are migrations."""


def upgrade(connection: Connection) -> None:
    """Run all pending migrations inside the caller's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    # Alembic reads options with configparser, where a percent sign starts an interpolation.
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    command.upgrade(config, "head")

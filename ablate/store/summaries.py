"""Lists the studies of a store. SQLite stores are read with sqlite3 alone.

Importing SQLAlchemy would take most of the time of `ablate list`.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from ablate.errors import StoreError
from ablate.locations import typed_path
from ablate.store.migrations import SCHEMA_VERSION
from ablate.store.records import StudySummary

# Valid in SQLite and PostgreSQL. The columns are the fields of `StudySummary` in order.
SUMMARIES = """
    SELECT studies.name, studies.question,
        (SELECT count(*) FROM study_variants WHERE study_variants.study_id = studies.id) AS variants,
        count(planned.state) AS planned,
        count(*) FILTER (WHERE planned.state = 'finished') AS finished,
        count(*) FILTER (WHERE planned.state = 'diverged') AS diverged,
        count(*) FILTER (WHERE planned.state = 'pruned') AS pruned,
        count(*) FILTER (WHERE planned.state = 'failed') AS failed,
        count(*) FILTER (WHERE planned.state = 'running') AS running,
        studies.updated_at
    FROM studies LEFT JOIN study_trials AS planned ON planned.study_id = studies.id
    GROUP BY studies.id
    ORDER BY studies.updated_at DESC, studies.name
"""


def list_studies(location: str | Path) -> list[StudySummary]:
    """All studies of a store with the number of trials in each state, latest first.

    Raises:
        NotFoundError: There is no store.
        StoreError: The database is not a store, has a newer schema, or failed.
    """
    summaries = _read_directly(location)
    if summaries is None:
        from ablate.store.store import open_store

        with open_store(location, create=False) as store:
            return store.studies()
    return summaries


def _read_directly(location: str | Path) -> list[StudySummary] | None:
    """The studies of an SQLite store with the current schema; None otherwise, which `open_store` then handles."""
    if "://" in str(location):
        return None
    path = typed_path(location, StoreError)
    try:
        if not path.is_file():
            return None
        with closing(sqlite3.connect(path)) as connection:
            if connection.execute("SELECT version_num FROM alembic_version").fetchall() != [(SCHEMA_VERSION,)]:
                return None
            rows = connection.execute(SUMMARIES).fetchall()
        if any(row[-2] for row in rows):  # whether the drivers of running trials live is for `open_store` to find out
            return None
        return [StudySummary(*(*row[:-1], datetime.fromisoformat(row[-1]).replace(tzinfo=UTC))) for row in rows]
    except (sqlite3.Error, OSError, ValueError, TypeError):
        return None

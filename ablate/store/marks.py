"""User annotations of studies and trials: a star, tags and a note."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from sqlalchemy import select

from ablate.store.database import Database
from ablate.store.records import Mark
from ablate.store.tables import marks

Marked = Literal["study", "trial"]


class Marks:
    """The marks of a store; see `Store.marks`. Marks remain when their study or trial is removed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, kind: Marked, name: str) -> Mark:
        """The mark of a study (by name) or trial (by key); an empty mark if there is none."""
        return self.all(kind, name).get(name, Mark())

    def all(self, kind: Marked, name: str | None = None) -> dict[str, Mark]:
        """All marks of studies or trials, by name or key."""
        query = select(marks).where(marks.c.kind == kind)
        if name is not None:
            query = query.where(marks.c.name == name)
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return {row.name: Mark(row.starred, tuple(row.tags), row.note) for row in rows}

    def put(self, kind: Marked, name: str, mark: Mark) -> None:
        """Write a mark, replacing an existing one."""
        values = {
            "kind": kind,
            "name": name,
            "starred": mark.starred,
            "tags": sorted(set(mark.tags)),
            "note": mark.note,
            "updated_at": datetime.now(UTC),
        }
        with self._database.writing() as connection:
            connection.execute(self._database.upsert(marks), values)

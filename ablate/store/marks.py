"""What people write beside studies and trials: a star, tags, a note. All that is ever written by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from sqlalchemy import select

from ablate.store.database import Database
from ablate.store.records import Mark
from ablate.store.tables import marks

Marked = Literal["study", "trial"]


class Marks:
    """The marks of a store; made by `Store.marks`. They outlive what they stand beside."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, kind: Marked, name: str) -> Mark:
        """The mark of one study (by its name) or trial (by its key); an empty one if there is none."""
        return self.all(kind, name).get(name, Mark())

    def all(self, kind: Marked, name: str | None = None) -> dict[str, Mark]:
        """The marks of all studies or trials that have one, by name or key."""
        query = select(marks).where(marks.c.kind == kind)
        if name is not None:
            query = query.where(marks.c.name == name)
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return {row.name: Mark(row.starred, tuple(row.tags), row.note) for row in rows}

    def put(self, kind: Marked, name: str, mark: Mark) -> None:
        """Write a mark in place of the one before; the last one to write wins."""
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

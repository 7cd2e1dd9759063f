"""Writes records as rows within a transaction, replacing rows that may be replaced; marks: stars, tags, notes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Insert, bindparam, select

from ablate.roles import TrialRole
from ablate.store import queries
from ablate.store.activity import free
from ablate.store.database import Database
from ablate.store.records import (
    CurvePoint,
    Environment,
    Mark,
    PlannedTrial,
    Recording,
    TrialOutcome,
    TrialState,
    VariantRecord,
)
from ablate.store.rows import (
    environment_row,
    point_rows,
    readable,
    recording_rows,
    study_trial_row,
    study_variant_row,
    variant_row,
)
from ablate.store.tables import curves, environments, marks, recordings, study_trials, study_variants, trials, variants

UNSETTLED = (TrialState.RUNNING, TrialState.FAILED)
"""States of trials that are run again."""
_REPLACEABLE = (*UNSETTLED, TrialState.PRUNED)  # another study may train a pruned trial to its end


class Writer:
    """Writes to a database with prebuilt statements, because building one takes as long as running it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._environment_ids: dict[str, int] = {}
        self._put_start = database.upsert(trials, where=_replaceable(database))
        self._put_outcome = database.upsert(trials, keep=["attempts", "worker"], where=_replaceable(database))
        self._put_state = study_trials.update().where(study_trials.c.trial_key == bindparam("key_"))
        self._put_points = database.upsert(curves)
        self._running = (
            select(trials.c.key)
            .where(trials.c.key.in_(bindparam("keys", expanding=True)), trials.c.driver == bindparam("by"))
            .where(trials.c.state == TrialState.RUNNING)
            .with_for_update()
        )
        self._delete_details = [
            table.delete().where(table.c.trial_key == bindparam("key_")) for table in (curves, recordings)
        ]
        self._put_study_variants = database.upsert(study_variants, keep=["position"])

    def put_variants(self, connection: Connection, study: int, added: Sequence[VariantRecord]) -> None:
        """Append variants to a study."""
        if not added:
            return
        first = queries.next_position(connection, study, study_variants.c.study_id, study_variants.c.position)
        connection.execute(
            self._database.insert(variants).on_conflict_do_nothing(), [variant_row(variant) for variant in added]
        )
        hashes = [variant.hash for variant in added]
        rows = queries.in_chunks(connection, hashes, lambda chunk: select(variants).where(variants.c.hash.in_(chunk)))
        shared = {row.hash: row._mapping for row in rows}
        connection.execute(
            self._put_study_variants,
            [
                study_variant_row(study, position, variant, shared[variant.hash])
                for position, variant in enumerate(added, first)
            ],
        )

    def put_planned(self, connection: Connection, study: int, added: Sequence[PlannedTrial]) -> None:
        """Append trials to the plan of a study, with the state of those that already exist.

        A trial planned as a stage of others takes the new role and variant. Other planned trials stay as they are.
        """
        if not added:
            return
        first = queries.next_position(connection, study, study_trials.c.study_id, study_trials.c.position)
        stage = study_trials.c.role == TrialRole.STAGE
        connection.execute(
            self._database.upsert(study_trials, keep=("position", "state"), where=stage),
            [study_trial_row(study, position, planned) for position, planned in enumerate(added, first)],
        )
        for chunk in queries.chunks([planned.key for planned in added]):
            known = select(trials.c.state).where(trials.c.key == study_trials.c.trial_key)
            connection.execute(
                study_trials.update()
                .where(study_trials.c.study_id == study, study_trials.c.trial_key.in_(chunk), known.exists())
                .values(state=known.scalar_subquery())
            )

    def put_start(self, row: dict[str, Any], environment: Environment) -> bool:
        """Write a running trial without a curve. Returns False, without any change, if it may not be replaced."""
        return self._put_trial(self._put_start, row, (), environment)

    def put_outcome(self, row: dict[str, Any], outcome: TrialOutcome, environment: Environment) -> bool:
        """Write an ended trial, its curve and its recordings. Returns False as `put_start` does."""
        return self._put_trial(self._put_outcome, row, outcome.curve, environment, outcome.recordings)

    def put_running_points(self, rows: Sequence[dict[str, Any]], driver: str) -> None:
        """Write points of curves, except those of trials that this driver does not run."""
        with self._database.writing() as connection:
            running: set[str] = set()
            for keys in queries.chunks([*{row["trial_key"] for row in rows}]):
                running.update(connection.execute(self._running, {"keys": keys, "by": driver}).scalars())
            if ours := [row for row in rows if row["trial_key"] in running]:
                connection.execute(self._put_points, ours)

    def _put_trial(
        self,
        put: Insert,
        row: dict[str, Any],
        curve: Sequence[CurvePoint],
        environment: Environment,
        recorded: Sequence[Recording] = (),
    ) -> bool:
        """Write a trial and its curve. Returns False, without any change, if the existing one may not be replaced."""
        row = row | {"environment_id": self._environment_id(environment)}
        with self._database.writing() as connection:
            if not connection.execute(put, row).rowcount:
                return False
            connection.execute(self._put_state, {"key_": row["key"], "state": row["state"]})
            for delete in self._delete_details:
                connection.execute(delete, {"key_": row["key"]})
            if curve:
                connection.execute(self._put_points, point_rows(row["key"], curve))
            if recorded:
                connection.execute(recordings.insert(), recording_rows(row["key"], recorded))
        return True

    def _environment_id(self, environment: Environment) -> int:
        row = environment_row(environment)
        if row["hash"] not in self._environment_ids:
            # A separate transaction: if it were part of one that fails, we would cache the id of a missing row.
            with self._database.writing(more=True) as connection:
                connection.execute(self._database.insert(environments).on_conflict_do_nothing(), row)
                query = select(environments.c.id).where(environments.c.hash == row["hash"])
                self._environment_ids[row["hash"]] = connection.execute(query).scalar_one()
        return self._environment_ids[row["hash"]]


def _replaceable(database: Database) -> ColumnElement[bool]:
    """SQL condition: the existing row of a trial may be replaced by the driver of the new row."""
    return trials.c.state.in_(_REPLACEABLE) & free(database.insert(trials).excluded.driver)


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
        found = {row.name: readable(Mark, row._mapping) for row in rows}
        return {name: mark for name, mark in found.items() if mark is not None}

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

"""What a store writes within a transaction: records as rows, in place of those that they may replace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Insert, bindparam, select

from ablate.store import queries
from ablate.store.database import Database
from ablate.store.leases import free
from ablate.store.records import (
    CurvePoint,
    Environment,
    PlannedTrial,
    Recording,
    TrialOutcome,
    TrialState,
    VariantRecord,
)
from ablate.store.rows import (
    environment_row,
    point_rows,
    recording_rows,
    study_trial_row,
    study_variant_row,
    variant_row,
)
from ablate.store.tables import curves, environments, recordings, study_trials, study_variants, trials, variants

UNSETTLED = (TrialState.RUNNING, TrialState.FAILED)
"""States of a trial that is to be run again."""
_REPLACEABLE = (*UNSETTLED, TrialState.PRUNED)  # what one study has pruned another may train to its end


class Writer:
    """Writes into one database; its statements are made once, as making them takes as long as running them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._environment_ids: dict[str, int] = {}
        self._put_start = database.upsert(trials, where=_replaceable(database))
        self._put_outcome = database.upsert(trials, keep=["attempts", "worker"], where=_replaceable(database))
        self._put_state = study_trials.update().where(study_trials.c.trial_key == bindparam("ended"))
        self._put_points = database.upsert(curves)
        self._running = (
            select(trials.c.key)
            .where(trials.c.key.in_(bindparam("keys", expanding=True)), trials.c.driver == bindparam("by"))
            .where(trials.c.state == TrialState.RUNNING)
            .with_for_update()
        )
        self._drop_told = [told.delete().where(told.c.trial_key == bindparam("of")) for told in (curves, recordings)]
        self._put_study_variants = database.upsert(study_variants, keep=["position"])

    def put_variants(self, connection: Connection, study: int, added: Sequence[VariantRecord]) -> None:
        """Add variants to a study, after those it has."""
        if not added:
            return
        first = queries.next_position(connection, study, study_variants.c.study_id, study_variants.c.position)
        connection.execute(
            self._database.insert(variants).on_conflict_do_nothing(), [variant_row(variant) for variant in added]
        )
        connection.execute(
            self._put_study_variants,
            [study_variant_row(study, position, variant) for position, variant in enumerate(added, first)],
        )

    def put_planned(self, connection: Connection, study: int, added: Sequence[PlannedTrial]) -> None:
        """Add trials to the plan of a study, after those it has; the state of those that exist is taken over."""
        if not added:
            return
        first = queries.next_position(connection, study, study_trials.c.study_id, study_trials.c.position)
        connection.execute(
            self._database.insert(study_trials).on_conflict_do_nothing(),
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
        """Write a trial that runs, without a curve; False, and nothing written, if it takes nobody's place."""
        return self._put_trial(self._put_start, row, (), environment)

    def put_outcome(self, row: dict[str, Any], outcome: TrialOutcome, environment: Environment) -> bool:
        """Write a trial that has ended, its curve and what was recorded; False as with `put_start`."""
        return self._put_trial(self._put_outcome, row, outcome.curve, environment, outcome.recordings)

    def put_running_points(self, rows: Sequence[dict[str, Any]], driver: str) -> None:
        """Write points of curves, but for those of trials that this driver does not run."""
        with self._database.writing() as connection:
            running: set[str] = set()
            for keys in queries.chunks(sorted({row["trial_key"] for row in rows})):
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
        """Write a trial and its curve in place of a replaceable one; False, and nothing written, if it is none."""
        row = row | {"environment_id": self._environment_id(environment)}
        with self._database.writing() as connection:
            if not connection.execute(put, row).rowcount:
                return False
            connection.execute(self._put_state, {"ended": row["key"], "state": row["state"]})
            for drop in self._drop_told:
                connection.execute(drop, {"of": row["key"]})
            if curve:
                connection.execute(self._put_points, point_rows(row["key"], curve))
            if recorded:
                connection.execute(recordings.insert(), recording_rows(row["key"], recorded))
        return True

    def _environment_id(self, environment: Environment) -> int:
        row = environment_row(environment)
        if row["hash"] not in self._environment_ids:
            # A transaction of its own: were it part of one that fails, we would remember a row that is not there.
            with self._database.writing(more=True) as connection:
                connection.execute(self._database.insert(environments).on_conflict_do_nothing(), row)
                query = select(environments.c.id).where(environments.c.hash == row["hash"])
                self._environment_ids[row["hash"]] = connection.execute(query).scalar_one()
        return self._environment_ids[row["hash"]]


def _replaceable(database: Database) -> ColumnElement[bool]:
    """Of the row of a trial: that another may be put in its place, by a driver that the other row names."""
    return trials.c.state.in_(_REPLACEABLE) & free(database.insert(trials).excluded.driver)

"""`Store`: studies, variants, trials and curves in a database. Records go in, records come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Row, func, literal, select

from ablate.errors import NotFoundError, check_argument, check_texts
from ablate.store import queries
from ablate.store.activity import Activity, activity
from ablate.store.database import Database
from ablate.store.leases import Lease, drop_abandoned, free
from ablate.store.marks import Marks
from ablate.store.records import (
    FIRST_SCOUT_SEED,
    CurvePoint,
    Declaration,
    Environment,
    PlannedTrial,
    Recording,
    StudyDraft,
    StudyRecord,
    StudySummary,
    TrialOutcome,
    TrialRecord,
    TrialState,
    VariantRecord,
    WorkerRecord,
)
from ablate.store.rows import (
    TRIAL_COLUMNS,
    declaration_row,
    outcome_row,
    point_rows,
)
from ablate.store.tables import (
    studies,
    study_trials,
    study_variants,
    trials,
    variants,
)
from ablate.store.writing import UNSETTLED, Writer

_KEYS = "`Store.study(NAME).planned` holds the keys of a study's trials."


def open_store(location: str | Path, *, create: bool = True) -> Store:
    """Open a store: a file, or a database on a server.

    Args:
        location: A path (SQLite), or a URL: `sqlite:///PATH`, `postgresql://USER@HOST/NAME`.
        create: Make the store if there is none, and open it to write. Without it the store is opened to read, which
            also works in a read-only folder.

    Raises:
        ArgumentError: The location is neither a path nor a URL.
        NotFoundError: There is no store and `create` is false.
        StoreError: It is no store, of a newer schema, or the database refuses.
    """
    check_argument("open_store: location", location, (str, Path), "a path or a URL")
    return Store(Database(location, create=create))


class Store:
    """What is known about studies and trials; made by `open_store`.

    Several processes may read a store and write to it at once. Every method may raise a StoreError when the database
    refuses (no space left, a lock, a lost connection); then nothing of the call was stored. Those that read raise an
    ArgumentError for an argument of the wrong kind.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writer = Writer(database)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the database. The store cannot be used afterwards."""
        self._database.close()

    @property
    def where(self) -> str:
        """The store's file, or its URL without the password."""
        return self._database.where

    @property
    def schema_version(self) -> str:
        """Revision of the tables, four digits."""
        return self._database.schema_version

    def lease(self, study: str) -> Lease:
        """The right to run a study, as a context manager. The study need not exist yet."""
        check_argument("Store.lease: study", study, str, "the name of a study")
        return Lease(self._database, study)

    @property
    def marks(self) -> Marks:
        """The stars, tags and notes of people; also to be written where the store was opened to read."""
        return Marks(self._database)

    # Writing: the driver only.

    def begin_study(
        self, draft: StudyDraft, variants: Sequence[VariantRecord], planned: Sequence[PlannedTrial]
    ) -> StudyRecord:
        """Store a study, in place of one with the same name. Trials stay as they are, whoever planned them.

        What it declared otherwise before, when trials of it had finished, is kept: `StudyRecord.declared_before`.

        Args:
            draft: The study.
            variants: Its variants, in the order of the design.
            planned: Its trials, in the order of the design; each names one of the variants.
        """
        now = datetime.now(UTC)
        values = asdict(draft) | {"updated_at": now}
        with self._database.writing(alone=study_trials) as connection:
            values["declared_before"] = self._declared_before(connection, draft, now)
            connection.execute(
                self._database.insert(studies)
                .values(values | {"created_at": now})
                .on_conflict_do_update(index_elements=[studies.c.name], set_=values)
            )
            study = queries.study_row(connection, self.where, draft.name).id
            connection.execute(study_trials.delete().where(study_trials.c.study_id == study))
            connection.execute(study_variants.delete().where(study_variants.c.study_id == study))
            self._writer.put_variants(connection, study, variants)
            self._writer.put_planned(connection, study, planned)
            return queries.study_record(connection, queries.study_row(connection, self.where, draft.name))

    def _declared_before(self, connection: Connection, draft: StudyDraft, now: datetime) -> list[dict[str, Any]] | None:
        row = connection.execute(select(studies).where(studies.c.name == draft.name)).first()
        if row is None:
            return None
        before = row.declared_before or []
        ours = trials.c.key == study_trials.c.trial_key
        planned = select(func.count()).select_from(study_trials.join(trials, ours))
        finished = connection.execute(
            planned.where(study_trials.c.study_id == row.id, trials.c.state == TrialState.FINISHED)
        ).scalar_one()
        was = Declaration(row.objective, row.space.get("claims", []), now, finished, _seeds(row.space))
        same = (was.objective, was.claims) == (draft.objective, draft.space.get("claims", []))
        same = same and not self._seeds_changed(connection, row, _seeds(draft.space))
        return before if same or not finished else [*before, declaration_row(was)]

    def seeds_before(self, study: str, seeds: Any) -> list[Any]:
        """The seeds that a study declared one after the other until results had been seen, these left out.

        Args:
            study: Its name; it need not exist.
            seeds: What its design declares now.
        """
        with self._database.reading() as connection:
            row = connection.execute(select(studies).where(studies.c.name == study)).first()
            if row is None:
                return []
            before = [declared.get("seeds") for declared in row.declared_before or ()]
            return [*before, _seeds(row.space)] if self._seeds_changed(connection, row, seeds) else before

    def _seeds_changed(self, connection: Connection, row: Row[Any], seeds: Any) -> bool:
        """Whether these are other seeds than a study has, and it shows differences with their spread already."""
        return seeds != _seeds(row.space) and self._pairs(connection, row.id, row.baseline) > 1

    def _pairs(self, connection: Connection, study: int, baseline: str) -> int:
        """How many seeds the baseline and some variant of a study have finished, at the most."""
        rows = connection.execute(
            select(study_trials.c.variant, func.count())
            .join(trials, trials.c.key == study_trials.c.trial_key)
            .where(study_trials.c.study_id == study, trials.c.state == TrialState.FINISHED)
            .where(study_trials.c.seed < FIRST_SCOUT_SEED)
            .group_by(study_trials.c.variant)
        )
        counts: dict[str, int] = dict(rows.tuples().all())
        ours = counts.pop(baseline, 0)
        return min(ours, max(counts.values(), default=0))

    def add_variants(self, study: str, variants: Sequence[VariantRecord]) -> None:
        """Add variants to a study, after those it has; one with the name of an older one takes its place.

        Raises:
            NotFoundError: There is no such study.
        """
        with self._database.writing() as connection:
            self._writer.put_variants(connection, self._touch(connection, study), variants)

    def plan_trials(self, study: str, planned: Sequence[PlannedTrial]) -> None:
        """Add trials to the plan of a study, after those it has; those it has already are left alone.

        Raises:
            NotFoundError: There is no such study.
        """
        with self._database.writing(alone=study_trials) as connection:
            self._writer.put_planned(connection, self._touch(connection, study), planned)

    def record_started(
        self,
        key: str,
        variant_hash: str,
        seed: int,
        data_fingerprint: str,
        environment: Environment,
        driver: str = "",
        attempts: int = 1,
    ) -> bool:
        """Store that a trial is running, with no points yet.

        Args:
            key: Of the trial.
            variant_hash: Of its variant.
            seed: Of the trial.
            data_fingerprint: Of the data that it is to see.
            environment: Of its driver.
            driver: Token of the lease that its driver holds; the trial is held by it. Empty: by nobody.
            attempts: How often this driver has begun it, with this time.

        Returns:
            False if the trial is settled already, or another living driver runs it; then nothing is changed.
        """
        row = {
            "key": key,
            "variant_hash": variant_hash,
            "seed": seed,
            "state": TrialState.RUNNING,
            "metrics": {},
            "steps": 0,
            "seconds": 0.0,
            "tokens": 0,
            "flops": 0.0,
            "stopped_at": None,
            "reason": "",
            "data_fingerprint": data_fingerprint,
            "started_at": datetime.now(UTC),
            "finished_at": None,
            "driver": driver,
            "attempts": attempts,
            "worker": None,
        }
        if self._writer.put_start(row, environment):
            return True
        with self._database.writing() as connection:
            freed = drop_abandoned(connection, driver)
        return freed > 0 and self._writer.put_start(row, environment)

    def record_worker(self, key: str, worker: WorkerRecord | None, attempts: int, driver: str = "") -> None:
        """Store where a running trial trains now, and how often it was begun."""
        with self._database.writing() as connection:
            running = (trials.c.key == key) & (trials.c.state == TrialState.RUNNING) & (trials.c.driver == driver)
            values = {"worker": None if worker is None else asdict(worker), "attempts": attempts}
            connection.execute(trials.update().where(running).values(values))

    def record_points(self, points: Mapping[str, Sequence[CurvePoint]], driver: str = "") -> None:
        """Add points to the curves of running trials, by key; those of a trial not run by this driver are left out."""
        rows = [row for key, added in points.items() for row in point_rows(key, added)]
        if rows:
            self._writer.put_running_points(rows, driver)

    def record_outcome(self, outcome: TrialOutcome, environment: Environment, driver: str = "") -> bool:
        """Store how a trial ended, with its complete curve in place of the points so far, and what was recorded.

        Args:
            outcome: How it ended. Its metrics are finite numbers; a loss in its curve that is NaN is stored as None.
            environment: Where it ran.
            driver: Token of the lease that its driver holds.

        Returns:
            False if the trial was settled before, or another living driver runs it; then nothing is changed.
        """
        row = outcome_row(outcome) | {"driver": driver}
        return self._writer.put_outcome(row, outcome, environment)

    def forget_unfinished(self, keys: Sequence[str], driver: str = "") -> int:
        """Remove those of the trials that run (their driver is dead, or this one) or failed, so that they run again.

        Args:
            keys: Of the trials.
            driver: Token of the lease that the caller holds. What another living driver runs is left alone.

        Pruned ones stay.

        Returns:
            How many were removed.
        """
        forgotten = 0
        with self._database.writing() as connection:
            drop_abandoned(connection, alive=driver)
            for chunk in queries.chunks(keys):
                unfinished = trials.c.key.in_(chunk) & trials.c.state.in_(UNSETTLED) & free(literal(driver))
                forgotten += connection.execute(trials.delete().where(unfinished)).rowcount
                gone = ~select(trials.c.key).where(trials.c.key == study_trials.c.trial_key).exists()
                left = study_trials.c.trial_key.in_(chunk) & study_trials.c.state.in_(UNSETTLED) & gone
                connection.execute(study_trials.update().where(left).values(state=TrialState.WAITING))
        return forgotten

    # Reading.

    def studies(self) -> list[StudySummary]:
        """All studies with how many of their trials are in which state, the latest first."""
        with self._database.reading() as connection:
            return queries.summaries(connection)

    def activity(self) -> Activity:
        """What goes on now: drivers, running trials, throughput."""
        with self._database.reading() as connection:
            return activity(connection)

    def study(self, name: str) -> StudyRecord:
        """One study with its variants and planned trials.

        Raises:
            NotFoundError: There is no such study; the message names the nearest.
        """
        check_argument("Store.study: name", name, str, "the name of a study", "`Store.studies()` lists them.")
        with self._database.reading() as connection:
            return queries.study_record(connection, queries.study_row(connection, self.where, name))

    def trials(self, keys: Sequence[str]) -> dict[str, TrialRecord]:
        """The trials of these keys that the store holds, by key, in the order of the keys."""
        keys = _keys("Store.trials", keys)
        with self._database.reading() as connection:
            found = queries.trials_of_keys(connection, keys)
        return {key: found[key] for key in keys if key in found}

    def trial(self, prefix: str) -> TrialRecord:
        """The one trial whose key begins so.

        Raises:
            NotFoundError: There is none, or more than one.
        """
        check_argument("Store.trial: prefix", prefix, str, "the beginning of a trial's key", _KEYS)
        named = trials.c.key.startswith(prefix, autoescape=True)
        query = select(*TRIAL_COLUMNS).where(named).order_by(trials.c.key).limit(3)
        with self._database.reading() as connection:
            found = queries.trial_records(connection, list(connection.execute(query)))
        if not found:
            with self._database.reading() as connection:
                near = queries.keys_near(connection, prefix)
            raise NotFoundError(
                f"there is no trial whose key begins with {prefix!r}",
                where=self.where,
                expected=f"the beginning of a key; the nearest: {' and '.join(near)}" if near else None,
                remedy="`ablate plan FILE --json` lists the trials of a space with their keys.",
            )
        if len(found) > 1:
            raise NotFoundError(
                f"the key of more than one trial begins with {prefix!r}",
                where=self.where,
                expected="the beginning of one key",
                got=f"for instance {' and '.join(key[: len(prefix) + 8] for key in found)}",
                remedy="Write more of the key.",
            )
        return next(iter(found.values()))

    def variant(self, digest: str) -> VariantRecord:
        """The variant of this content hash, with the name and settings that the first study with it has for it.

        A variant that no study has any more (its space has changed since) has an empty name and no settings.

        Raises:
            NotFoundError: There is none.
        """
        remedy = "`Store.study(NAME).variants` holds the hashes."
        check_argument("Store.variant: digest", digest, str, "the content hash of a variant", remedy)
        query = (
            select(variants, study_variants.c.name, study_variants.c.settings)
            .outerjoin(study_variants, study_variants.c.variant_hash == variants.c.hash)
            .where(variants.c.hash == digest)
            .order_by(study_variants.c.study_id, study_variants.c.position)
        )
        with self._database.reading() as connection:
            row = connection.execute(query).mappings().first()
        if row is None:
            raise NotFoundError(f"there is no variant with the content hash {digest!r}", where=self.where)
        return VariantRecord(**{**row, "name": row["name"] or "", "settings": row["settings"] or {}})

    def curves(self, keys: Sequence[str]) -> dict[str, tuple[CurvePoint, ...]]:
        """The learning curves of these trials, by key, by step; empty for a trial without points."""
        keys = _keys("Store.curves", keys)
        points: dict[str, tuple[CurvePoint, ...]] = dict.fromkeys(keys, ())
        with self._database.reading() as connection:
            points.update(queries.points_of_keys(connection, list(points)))
        return points

    def recordings(self, key: str) -> tuple[Recording, ...]:
        """What was recorded inside the model of a trial, by step; empty if nothing was."""
        check_argument("Store.recordings: key", key, str, "the key of a trial", _KEYS)
        with self._database.reading() as connection:
            return queries.recordings_of(connection, key)

    def crossings(self, keys: Sequence[str], target: float) -> dict[str, tuple[CurvePoint, ...]]:
        """Where the validation loss of these trials first is at or below `target`, by key.

        Much sooner read than whole curves: the database looks for it.

        Returns:
            The first point that is, and before it the last one that was evaluated, if there is one. A trial that
            stays above the target is left out.
        """
        keys = _keys("Store.crossings", keys)
        check_argument("Store.crossings: target", target, (int, float), "a loss, as a number")
        with self._database.reading() as connection:
            return dict(queries.crossings_of_keys(connection, keys, target))

    def _touch(self, connection: Connection, name: str) -> int:
        study: int = queries.study_row(connection, self.where, name).id
        connection.execute(studies.update().where(studies.c.id == study).values(updated_at=datetime.now(UTC)))
        return study


def _seeds(space: Mapping[str, Any]) -> Any:
    return space.get("design", {}).get("seeds")


def _keys(method: str, keys: Sequence[str]) -> list[str]:
    return check_texts(f"{method}: keys", keys, "a list of trials' keys", _KEYS)

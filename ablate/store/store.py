"""`Store`: writes and reads studies, variants, trials and curves as records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Row, func, literal, select

from ablate.errors import NotFoundError, check_argument, check_texts
from ablate.roles import TrialRole
from ablate.store import queries
from ablate.store.activity import Activity, activity
from ablate.store.database import Database
from ablate.store.leases import Lease, drop_abandoned, free
from ablate.store.marks import Marks
from ablate.store.records import (
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
        create: Create the store if it does not exist, and open it for writing. If False, the store is opened for
            reading, which also works in a read-only folder.

    Raises:
        ArgumentError: The location is neither a path nor a URL.
        NotFoundError: There is no store and `create` is False.
        StoreError: The database is not a store, has a newer schema, or failed.
    """
    check_argument("open_store: location", location, (str, Path), "a path or a URL")
    return Store(Database(location, create=create))


class Store:
    """The studies and trials of a database; created by `open_store`.

    Several processes may read and write a store concurrently. Every method may raise a StoreError if the database fails
    (disk full, lock, lost connection); then nothing of the call was stored. Methods that read raise an ArgumentError
    for an argument of the wrong type.
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
    def caution(self) -> str:
        """What to mind where the store is; empty if nothing."""
        kind = self._database.shared_by
        return (
            f"the store is on a network file system ({kind}), on which locks of several machines may not hold: run one"
            " study at a time on it, or use PostgreSQL"
            if kind
            else ""
        )

    @property
    def schema_version(self) -> str:
        """Revision of the tables: four digits."""
        return self._database.schema_version

    def lease(self, study: str) -> Lease:
        """The exclusive right to run a study, as a context manager. The study need not exist yet."""
        check_argument("Store.lease: study", study, str, "the name of a study")
        return Lease(self._database, study)

    @property
    def marks(self) -> Marks:
        """Stars, tags and notes of users; can be written even if the store was opened for reading."""
        return Marks(self._database)

    # Writing: the driver only.

    def begin_study(
        self, draft: StudyDraft, variants: Sequence[VariantRecord], planned: Sequence[PlannedTrial]
    ) -> StudyRecord:
        """Store a study, replacing one with the same name. Existing trials are not changed.

        If objective or claims have changed since trials finished, the former ones are kept in
        `StudyRecord.declared_before`.

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
        earlier = row.declared_before or []
        ours = trials.c.key == study_trials.c.trial_key
        planned = select(func.count()).select_from(study_trials.join(trials, ours))
        finished = connection.execute(
            planned.where(study_trials.c.study_id == row.id, trials.c.state == TrialState.FINISHED)
        ).scalar_one()
        previous = Declaration(row.objective, row.space.get("claims", []), now, finished, _seeds(row.space))
        unchanged = (previous.objective, previous.claims) == (draft.objective, draft.space.get("claims", []))
        unchanged = unchanged and not self._seeds_changed(connection, row, _seeds(draft.space))
        return earlier if unchanged or not finished else [*earlier, declaration_row(previous)]

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
            .where(study_trials.c.role == TrialRole.COMPARISON)
            .group_by(study_trials.c.variant)
        )
        counts: dict[str, int] = {row[0]: row[1] for row in rows}
        ours = counts.pop(baseline, 0)
        return min(ours, max(counts.values(), default=0))

    def add_variants(self, study: str, variants: Sequence[VariantRecord]) -> None:
        """Append variants to a study. A variant with an existing name replaces it.

        Raises:
            NotFoundError: There is no such study.
        """
        with self._database.writing() as connection:
            self._writer.put_variants(connection, self._touch(connection, study), variants)

    def plan_trials(self, study: str, planned: Sequence[PlannedTrial]) -> None:
        """Append trials to the plan of a study. Of trials that are already planned only stages change: to the new role.

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
        """Store that a trial is running, without points.

        Args:
            key: Key of the trial.
            variant_hash: Content hash of its variant.
            seed: Seed of the trial.
            data_fingerprint: Fingerprint of its data.
            environment: Environment of its driver.
            driver: Token of the lease of its driver; empty if there is none.
            attempts: How often this driver has started it, including this time.

        Returns:
            False, without any change, if the trial is already settled or another living driver runs it.
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
        """Store where a running trial is trained, and how often it was started."""
        with self._database.writing() as connection:
            running = (trials.c.key == key) & (trials.c.state == TrialState.RUNNING) & (trials.c.driver == driver)
            values = {"worker": None if worker is None else asdict(worker), "attempts": attempts}
            connection.execute(trials.update().where(running).values(values))

    def record_points(self, points: Mapping[str, Sequence[CurvePoint]], driver: str = "") -> None:
        """Append points to the curves of running trials, by key; ignores trials that this driver does not run."""
        rows = [row for key, added in points.items() for row in point_rows(key, added)]
        if rows:
            self._writer.put_running_points(rows, driver)

    def record_outcome(self, outcome: TrialOutcome, environment: Environment, driver: str = "") -> bool:
        """Store the outcome of a trial with its recordings and its complete curve, which replaces earlier points.

        Args:
            outcome: The outcome. Its metrics are finite; NaN losses in its curve are stored as None.
            environment: The environment in which it ran.
            driver: Token of the lease of its driver.

        Returns:
            False, without any change, if the trial was already settled or another living driver runs it.
        """
        row = outcome_row(outcome) | {"driver": driver}
        return self._writer.put_outcome(row, outcome, environment)

    def forget_unfinished(self, keys: Sequence[str], driver: str = "") -> int:
        """Remove failed trials and running trials of dead drivers or of this one, so that they run again.

        Args:
            keys: Keys of the trials to consider. Pruned trials and trials of other living drivers are kept.
            driver: Token of the lease of the caller.

        Returns:
            Number of removed trials.
        """
        removed = 0
        with self._database.writing() as connection:
            drop_abandoned(connection, alive=driver)
            for chunk in queries.chunks(keys):
                unfinished = trials.c.key.in_(chunk) & trials.c.state.in_(UNSETTLED) & free(literal(driver))
                removed += connection.execute(trials.delete().where(unfinished)).rowcount
                gone = ~select(trials.c.key).where(trials.c.key == study_trials.c.trial_key).exists()
                left = study_trials.c.trial_key.in_(chunk) & study_trials.c.state.in_(UNSETTLED) & gone
                connection.execute(study_trials.update().where(left).values(state=TrialState.WAITING))
        return removed

    # Reading.

    def studies(self) -> list[StudySummary]:
        """All studies with the number of trials in each state, latest first."""
        with self._database.reading() as connection:
            return queries.summaries(connection)

    def activity(self) -> Activity:
        """The current drivers, running trials and throughput."""
        with self._database.reading() as connection:
            return activity(connection)

    def study(self, name: str) -> StudyRecord:
        """A study with its variants and planned trials.

        Raises:
            NotFoundError: There is no such study; the message suggests similar names.
        """
        check_argument("Store.study: name", name, str, "the name of a study", "`Store.studies()` lists them.")
        with self._database.reading() as connection:
            return queries.study_record(connection, queries.study_row(connection, self.where, name))

    def trials(self, keys: Sequence[str]) -> dict[str, TrialRecord]:
        """The existing trials among these keys, by key, in the order of the keys."""
        keys = _keys("Store.trials", keys)
        with self._database.reading() as connection:
            records = queries.trials_of_keys(connection, keys)
        return {key: records[key] for key in keys if key in records}

    def trial(self, prefix: str) -> TrialRecord:
        """The trial whose key starts with a prefix.

        Raises:
            NotFoundError: There is no such trial, or more than one.
        """
        check_argument("Store.trial: prefix", prefix, str, "the beginning of a trial's key", _KEYS)
        matches = trials.c.key.startswith(prefix, autoescape=True)
        query = select(*TRIAL_COLUMNS).where(matches).order_by(trials.c.key).limit(3)
        with self._database.reading() as connection:
            records = queries.trial_records(connection, list(connection.execute(query)))
        if not records:
            with self._database.reading() as connection:
                near = queries.keys_near(connection, prefix)
            raise NotFoundError(
                f"there is no trial whose key starts with {prefix!r}",
                where=self.where,
                expected=f"the beginning of a key, such as {' and '.join(near)}" if near else None,
                remedy="`ablate plan FILE --json` lists the trials of a space with their keys.",
            )
        if len(records) > 1:
            raise NotFoundError(
                f"the keys of several trials start with {prefix!r}",
                where=self.where,
                expected="the beginning of one key",
                got=f"for instance {' and '.join(key[: len(prefix) + 8] for key in records)}",
                remedy="Give more characters of the key.",
            )
        return next(iter(records.values()))

    def variant(self, digest: str) -> VariantRecord:
        """The variant with this content hash, with its name and settings in the first study that has it.

        A variant that no study has any more has an empty name and no settings.

        Raises:
            NotFoundError: There is no such variant.
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
        """The learning curves of these trials by key, ordered by step; empty for a trial without points."""
        keys = _keys("Store.curves", keys)
        points: dict[str, tuple[CurvePoint, ...]] = dict.fromkeys(keys, ())
        with self._database.reading() as connection:
            points.update(queries.points_of_keys(connection, list(points)))
        return points

    def recordings(self, key: str) -> tuple[Recording, ...]:
        """The recordings of a trial, ordered by step; empty if there are none."""
        check_argument("Store.recordings: key", key, str, "the key of a trial", _KEYS)
        with self._database.reading() as connection:
            return queries.recordings_of(connection, key)

    def evaluations(self, keys: Sequence[str]) -> dict[str, tuple[CurvePoint, ...]]:
        """The points with a finite validation loss of these trials by key, ordered by step.

        They are few among the points of whole curves. Trials without any are left out.
        """
        keys = _keys("Store.evaluations", keys)
        with self._database.reading() as connection:
            return dict(queries.evaluations_of_keys(connection, keys))

    def _touch(self, connection: Connection, name: str) -> int:
        study: int = queries.study_row(connection, self.where, name).id
        connection.execute(studies.update().where(studies.c.id == study).values(updated_at=datetime.now(UTC)))
        return study


def _seeds(space: Mapping[str, Any]) -> Any:
    return space.get("design", {}).get("seeds")


def _keys(method: str, keys: Sequence[str]) -> list[str]:
    return check_texts(f"{method}: keys", keys, "a list of trials' keys", _KEYS)

"""`Store`: writes and reads studies, variants, trials and curves as records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, func, literal, select

from ablate.errors import ArgumentError, NotFoundError, check_argument
from ablate.roles import TrialRole
from ablate.store import exchange, queries
from ablate.store.activity import drop_abandoned, free
from ablate.store.database import Database
from ablate.store.leases import Lease
from ablate.store.reader import KEYS, StoreReader
from ablate.store.records import (
    CurvePoint,
    Declaration,
    Environment,
    PlannedTrial,
    SpeedTiming,
    StudyDraft,
    StudyRecord,
    TrialOutcome,
    TrialRecord,
    TrialState,
    VariantRecord,
    WorkerRecord,
)
from ablate.store.rows import declaration_row, outcome_row, point_rows, read
from ablate.store.tables import (
    TIMED_AT,
    codes,
    marks,
    recordings,
    studies,
    study_trials,
    study_variants,
    trials,
)
from ablate.store.writing import UNSETTLED, Marks, Writer


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


class Store(StoreReader):
    """The studies and trials of a database; created by `open_store`.

    Several processes may read and write a store concurrently. Every method may raise a StoreError if the database fails
    (disk full, lock, lost connection); then nothing of the call was stored. Methods that read raise an ArgumentError
    for an argument of the wrong type.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._writer = Writer(database)

    def lease(self, study: str) -> Lease:
        """The exclusive right to run a study, as a context manager. The study need not exist yet."""
        check_argument("Store.lease: study", study, str, "the name of a study")
        return Lease(self._database, study)

    @property
    def marks(self) -> Marks:
        """Stars, tags and notes of users; can be written even if the store was opened for reading."""
        return Marks(self._database)

    def begin_study(
        self, draft: StudyDraft, variants: Sequence[VariantRecord], planned: Sequence[PlannedTrial]
    ) -> StudyRecord:
        """Store a study, replacing one with the same name. Existing trials are not changed.

        If anything of it but its texts has changed since trials finished, or their code or data, what was declared
        before is kept in `StudyRecord.declared_before`.

        Args:
            draft: The study.
            variants: Its variants, in the order of the design.
            planned: Its trials, in the order of the design; each names one of the variants.
        """
        now = datetime.now(UTC)
        values = asdict(draft) | {"updated_at": now}
        with self._database.writing(alone=study_trials) as connection:
            values["declared_before"] = self._declared_before(connection, draft, variants, planned, now)
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
            row = queries.study_row(connection, self.where, draft.name)
            return queries.study_record(connection, self.where, row)

    def _declared_before(
        self,
        connection: Connection,
        draft: StudyDraft,
        variants: Sequence[VariantRecord],
        planned: Sequence[PlannedTrial],
        now: datetime,
    ) -> list[dict[str, Any]] | None:
        row = connection.execute(select(studies).where(studies.c.name == draft.name)).first()
        if row is None:
            return None
        earlier = row.declared_before or []
        ours = trials.c.key == study_trials.c.trial_key
        before = connection.execute(
            select(study_trials, trials.c.variant_hash, trials.c.code.label("trained"))
            .join(trials, ours)
            .where(study_trials.c.study_id == row.id, trials.c.state == TrialState.FINISHED)
        ).all()
        other_code, other_data = _count_replaced(before, variants, planned)
        unchanged = row.objective == draft.objective and _declarations(row.space) == _declarations(draft.space)
        if (unchanged and not other_code + other_data) or not before:
            return earlier
        compared = queries.finished_by_variant(connection, row.id, TrialRole.COMPARISON)
        fresh = queries.finished_by_variant(connection, row.id, TrialRole.CONFIRMATION)
        named = select(study_variants.c.name).where(study_variants.c.study_id == row.id, ~study_variants.c.chosen)
        confirm = select(func.count(study_trials.c.seed.distinct())).where(
            study_trials.c.study_id == row.id, study_trials.c.role == TrialRole.CONFIRMATION
        )
        previous = Declaration(
            row.objective,
            row.space.get("claims", []),
            now,
            len(before),
            _seeds(row.space),
            space=row.space,
            variants={name: compared.get(name, 0) for name in connection.execute(named).scalars()},
            pairs=_pairs(compared, row.baseline),
            confirm=connection.execute(confirm).scalar_one(),
            confirmed=_pairs(fresh, row.baseline),
            other_code=other_code,
            other_data=other_data,
        )
        return [*earlier, declaration_row(previous)]

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
            before = [read(Declaration, declared).seeds_seen for declared in row.declared_before or ()]
            compared = queries.finished_by_variant(connection, row.id, TrialRole.COMPARISON)
            changed = seeds != _seeds(row.space) and _pairs(compared, row.baseline) > 1
            return [*before, _seeds(row.space)] if changed else before

    def own_trials(self, study: str) -> tuple[list[str], int]:
        """The stored trials that only this study plans, and how many it shares with other studies.

        Raises:
            NotFoundError: There is no such study.
        """
        with self._database.reading() as connection:
            own, shared = queries.own_trials(connection, queries.study_row(connection, self.where, study).id)
        return own, len(shared)

    def delete_study(self, study: str) -> list[str]:
        """Remove a study, and the trials with curves and recordings that no other study plans; all or nothing.

        The caller holds the lease of the study.

        Returns:
            The keys of the removed trials.

        Raises:
            NotFoundError: There is no such study.
        """
        with self._database.writing(alone=study_trials) as connection:
            return queries.delete_study(connection, queries.study_row(connection, self.where, study).id)

    def rename_study(self, study: str, name: str) -> None:
        """Give a study another name, in its stored space too; its trials stay as they are.

        The caller holds the leases of both names.

        Raises:
            ArgumentError: A study of the new name exists.
            NotFoundError: There is no such study.
        """
        with self._database.writing() as connection:
            row = queries.study_row(connection, self.where, study)
            if connection.execute(select(studies.c.id).where(studies.c.name == name)).first() is not None:
                raise ArgumentError(
                    "a study of this name exists",
                    where=self.where,
                    got=name,
                    remedy="Choose another name, or delete that study first.",
                )
            text = re.sub(r"^name: .*$", lambda _: f"name: {json.dumps(name)}", row.text, count=1, flags=re.M)
            values = {"name": name, "space": row.space | {"name": name}, "text": text}
            connection.execute(studies.update().where(studies.c.id == row.id).values(values))
            here = (marks.c.kind == "study") & (marks.c.name == study)
            connection.execute(marks.delete().where(marks.c.kind == "study", marks.c.name == name))
            connection.execute(marks.update().where(here).values(name=name))

    def export_study(self, study: str, file: Path) -> dict[str, int]:
        """Write a study with its trials, curves and recordings to a file (`ablate.store.exchange.write_study`)."""
        return exchange.write_study(self._database, study, file)

    def import_study(self, file: Path) -> tuple[str, int, int]:
        """Import the study of such a file (`ablate.store.exchange.read_study`)."""
        return exchange.read_study(self._database, file)

    def keep_judged(self, judged: Mapping[str, tuple[StudyRecord, Mapping[str, TrialRecord]]]) -> None:
        """Keep judged runs as studies (`ablate.store.exchange.put_judged`)."""
        exchange.put_judged(self._database, judged)

    def add_codes(self, contents: Mapping[str, Mapping[str, Any]]) -> None:
        """Store what identities of code stand for; those that are known stay as they are."""
        if contents:
            with self._database.writing() as connection:
                connection.execute(
                    self._database.insert(codes).on_conflict_do_nothing(),
                    [{"hash": identity, "content": content} for identity, content in contents.items()],
                )

    def add_variants(self, study: str, variants: Sequence[VariantRecord]) -> None:
        """Append variants to a study. A variant with an existing name replaces it.

        Raises:
            NotFoundError: There is no such study.
        """
        with self._database.writing() as connection:
            self._writer.put_variants(connection, self._touch(connection, study), variants)

    def set_trivial(self, study: str, trivial: Mapping[str, Mapping[str, float]]) -> None:
        """Replace the metrics of trivial baselines of a study.

        Raises:
            NotFoundError: There is no such study.
        """
        with self._database.writing() as connection:
            of_study = studies.c.id == self._touch(connection, study)
            connection.execute(studies.update().where(of_study).values(trivial=trivial))

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
        code: str = "",
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
            code: Identity of the code that trains it; see `add_codes`.

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
            "code": code,
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

    def add_test_metrics(self, key: str, metrics: Mapping[str, float]) -> None:
        """Add metrics that were measured after the end of a finished trial; one of the same name is replaced.

        Any process may do so, as no design and no verdict reads test metrics.

        Args:
            key: Key of the trial.
            metrics: Finite values by name; each name starts with `test_`.

        Raises:
            ArgumentError: A name does not start with `test_`.
            NotFoundError: There is no such trial, or it has not finished.
        """
        if others := [name for name in metrics if not name.startswith("test_")]:
            raise ArgumentError(
                "these are not test metrics",
                where="Store.add_test_metrics: metrics",
                expected="names that start with `test_`",
                got=", ".join(others),
            )
        with self._database.writing() as connection:
            finished = (trials.c.key == key) & (trials.c.state == TrialState.FINISHED)
            known = connection.execute(select(trials.c.metrics).where(finished).with_for_update()).scalar_one_or_none()
            if known is None:
                raise NotFoundError("no trial with this key has finished", where=self.where, got=repr(key), remedy=KEYS)
            connection.execute(trials.update().where(finished).values(metrics={**known, **metrics}))

    def record_timing(self, key: str, timing: SpeedTiming) -> None:
        """Store how fast the variant of a finished trial trains; an earlier timing beside the same baseline goes.

        Args:
            key: Key of the trial.
            timing: What was measured.

        Raises:
            NotFoundError: There is no such trial, or it has not finished.
        """
        with self._database.writing() as connection:
            finished = select(trials.c.key).where(trials.c.key == key, trials.c.state == TrialState.FINISHED)
            if connection.execute(finished.with_for_update()).scalar_one_or_none() is None:
                raise NotFoundError("no trial with this key has finished", where=self.where, got=repr(key), remedy=KEYS)
            here = (recordings.c.trial_key == key) & (recordings.c.step == TIMED_AT)
            known = connection.execute(select(recordings.c.content).where(here)).scalar_one_or_none()
            measured = {name: value for name, value in asdict(timing).items() if name != "baseline"}
            content = {**(known or {}), timing.baseline: measured}
            connection.execute(recordings.delete().where(here))
            connection.execute(recordings.insert(), {"trial_key": key, "step": TIMED_AT, "content": content})

    def forget_unfinished(self, keys: Sequence[str], driver: str = "") -> int:
        """Remove failed trials, running trials of dead drivers or of this one, and what cannot be read of ended ones.

        So they run again.

        Args:
            keys: Keys of the trials to consider. Pruned trials and trials of other living drivers are kept.
            driver: Token of the lease of the caller.

        Returns:
            Number of removed trials.
        """
        removed = unreadable = 0
        with self._database.writing() as connection:
            drop_abandoned(connection, alive=driver)
            for chunk in queries.chunks(keys):
                records = queries.trials_of_keys(connection, chunk)
                lost = [key for key, record in records.items() if record.unreadable]
                unfinished = trials.c.key.in_(chunk) & trials.c.state.in_(UNSETTLED) & free(literal(driver))
                unreadable += len(lost)
                unfinished |= trials.c.key.in_(lost) & (trials.c.state != TrialState.RUNNING)
                removed += connection.execute(trials.delete().where(unfinished)).rowcount
                gone = ~select(trials.c.key).where(trials.c.key == study_trials.c.trial_key).exists()
                again = study_trials.c.state.in_(UNSETTLED) | study_trials.c.trial_key.in_(lost)
                left = study_trials.c.trial_key.in_(chunk) & again & gone
                connection.execute(study_trials.update().where(left).values(state=TrialState.WAITING))
        self._count(f"{unreadable:,} of {len(keys):,} trials", unreadable)
        return removed

    def _touch(self, connection: Connection, name: str) -> int:
        study: int = queries.study_row(connection, self.where, name).id
        connection.execute(studies.update().where(studies.c.id == study).values(updated_at=datetime.now(UTC)))
        return study


_WORDS = ("name", "question", "source", "departs", "resources", "plugins")
"""Keys of a space that affect no result."""


def _declarations(space: Mapping[str, Any]) -> dict[str, Any]:
    """What a space declares about its study."""
    return {key: value for key, value in space.items() if key not in _WORDS and value not in (None, [], {}, ())}


def _count_replaced(
    before: Iterable[Row[Any]], variants: Sequence[VariantRecord], planned: Sequence[PlannedTrial]
) -> tuple[int, int]:
    """How many finished trials of a plan are others now because of their code, and because of their data."""
    hashes = {variant.name: variant.hash for variant in variants}
    now = {(one.variant, one.seed, one.role): one for one in planned}
    found = [0, 0]
    for one in before:
        again = now.get((one.variant, one.seed, one.role))
        if again is not None and again.key != one.trial_key and hashes.get(one.variant) == one.variant_hash:
            found[again.code == one.trained] += 1
    return found[0], found[1]


def _pairs(finished: Mapping[str, int], baseline: str) -> int:
    """How many seeds the baseline and some variant have finished, at the most."""
    others = (count for name, count in finished.items() if name != baseline)
    return min(finished.get(baseline, 0), max(others, default=0))


def _seeds(space: Mapping[str, Any]) -> Any:
    return space.get("design", {}).get("seeds")

"""`StoreReader`: reads studies, variants, trials and curves as records."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from sqlalchemy import select

from ablate.errors import NotFoundError, StoreError, UnreadableWarning, check_argument, check_texts
from ablate.store import queries
from ablate.store.activity import activity
from ablate.store.database import Database
from ablate.store.failures import REPAIR
from ablate.store.records import (
    SETTLED,
    Activity,
    CurvePoint,
    Recording,
    SettledTrial,
    SpeedTiming,
    StudyRecord,
    StudySummary,
    TrialRecord,
    VariantRecord,
)
from ablate.store.rows import readable, variant_record
from ablate.store.tables import (
    codes,
    study_variants,
    trials,
    variants,
)

KEYS = "`Store.study(NAME).planned` holds the keys of a study's trials."


class StoreReader:
    """Reads a database. Every method may raise a StoreError if the database fails.

    Methods raise an ArgumentError for an argument of the wrong type.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._said: set[str] = set()

    def _count(self, which: str, lost: int, then: str = "the next run of a study trains them again") -> None:
        """Warn once that some rows cannot be read, and say what follows."""
        if lost and which not in self._said:
            self._said.add(which)
            remedy = f"`ablate check-store --store {self.where}` says why; {then}"
            warnings.warn(f"{which} cannot be read ({self.where}). {remedy}.", UnreadableWarning, stacklevel=3)

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
    def warning(self) -> str:
        """A warning about the location of the store; empty if there is none."""
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
            record = queries.study_record(connection, self.where, queries.study_row(connection, self.where, name))
        planned = len(record.planned) + len(record.scout_trials) + len(record.confirm_trials)
        self._count(f"of the study {name!r} {record.lost:,} of {planned + record.lost:,} planned trials", record.lost)
        return record

    def trials(self, keys: Sequence[str]) -> dict[str, TrialRecord]:
        """The existing trials among these keys, by key, in the order of the keys."""
        keys = _keys("Store.trials", keys)
        with self._database.reading() as connection:
            records = queries.trials_of_keys(connection, keys)
        lost = sum(record.unreadable != "" for record in records.values())
        self._count(f"{lost:,} of {len(records):,} trials", lost)
        return {key: records[key] for key in keys if key in records}

    def trial(self, prefix: str) -> TrialRecord:
        """The trial whose key starts with a prefix.

        Raises:
            NotFoundError: There is no such trial, or more than one.
        """
        check_argument("Store.trial: prefix", prefix, str, "the beginning of a trial's key", KEYS)
        # SQLite refuses patterns of more than 50,000 bytes; no key is nearly as long.
        matches = trials.c.key.startswith(prefix[:1000], autoescape=True)
        query = select(trials.c.key).where(matches).order_by(trials.c.key).limit(3)
        with self._database.reading() as connection:
            records = queries.trials_of_keys(connection, list(connection.execute(query).scalars()))
        for record in records.values():
            if record.unreadable:
                raise StoreError(
                    f"the trial {record.key} cannot be read", where=self.where, got=record.unreadable, remedy=REPAIR
                )
        if not records:
            with self._database.reading() as connection:
                near = queries.keys_near(connection, prefix)
            raise NotFoundError(
                f"there is no trial whose key starts with {prefix!r}",
                where=self.where,
                expected=f"the beginning of a key, such as {' and '.join(near)}" if near else None,
                remedy="`ablate show STUDY --trials` lists the trials of a study with their keys.",
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
            raise NotFoundError(
                f"there is no variant with the content hash {digest!r}", where=self.where, remedy=remedy
            )
        try:
            return variant_record({**row, "name": row["name"] or "", "settings": row["settings"] or {}})
        except ValueError as error:
            raise StoreError(
                "this variant cannot be read", where=self.where, got=f"{digest}: {error}", remedy=REPAIR
            ) from None

    def settled_trials(self) -> list[SettledTrial]:
        """All trials that are not trained again, with the code that trained them, the last to end last."""
        columns = (trials.c.key, trials.c.variant_hash, trials.c.seed, trials.c.data_fingerprint, trials.c.code)
        query = select(*columns).where(trials.c.state.in_(SETTLED)).order_by(trials.c.finished_at, trials.c.key)
        with self._database.reading() as connection:
            rows = connection.execute(query).mappings()
            return [trial for row in rows if (trial := readable(SettledTrial, row)) is not None]

    def codes(self, identities: Sequence[str]) -> dict[str, dict[str, Any]]:
        """What these identities of code stand for, by identity; unknown ones are left out."""
        wanted = [*{*identities} - {""}]
        with self._database.reading() as connection:
            rows = queries.in_chunks(
                connection, wanted, lambda chunk: select(codes.c.hash, codes.c.content).where(codes.c.hash.in_(chunk))
            )
            return {row.hash: row.content for row in rows if isinstance(row.content, dict)}

    def curves(self, keys: Sequence[str]) -> dict[str, tuple[CurvePoint, ...]]:
        """The learning curves of these trials by key, ordered by step; empty if one of their points cannot be read."""
        keys = _keys("Store.curves", keys)
        with self._database.reading() as connection:
            found = dict(queries.points_of_keys(connection, list(dict.fromkeys(keys))))
        self._count_curves(found)
        return dict.fromkeys(keys, ()) | found

    def recordings(self, key: str) -> tuple[Recording, ...]:
        """The recordings of a trial that can be read, ordered by step; empty if there are none."""
        check_argument("Store.recordings: key", key, str, "the key of a trial", KEYS)
        with self._database.reading() as connection:
            found = queries.recordings_of(connection, key)
        readable_ = tuple(recording for recording in found if recording is not None)
        lost = len(found) - len(readable_)
        self._count(f"{lost:,} of {len(found):,} recordings of the trial {key[:12]}", lost, "they are left out")
        return readable_

    def timings(self, keys: Sequence[str]) -> dict[str, tuple[SpeedTiming, ...]]:
        """How fast the variants of these trials train, by key, one for each baseline; those without are left out."""
        keys = _keys("Store.timings", keys)
        with self._database.reading() as connection:
            found = dict(queries.timings_of_keys(connection, keys))
        lost = sum(not timings for timings in found.values())
        self._count(f"the timings of {lost:,} of {len(found):,} trials", lost, "they are left out")
        return {key: timings for key, timings in found.items() if timings}

    def evaluations(self, keys: Sequence[str]) -> dict[str, tuple[CurvePoint, ...]]:
        """The points with a finite validation loss of these trials by key, ordered by step.

        They are few among the points of whole curves. Trials without any are left out.
        """
        keys = _keys("Store.evaluations", keys)
        with self._database.reading() as connection:
            found = dict(queries.evaluations_of_keys(connection, keys))
        self._count_curves(found)
        return {key: points for key, points in found.items() if points}

    def _count_curves(self, found: Mapping[str, Sequence[CurvePoint]]) -> None:
        lost = sum(not points for points in found.values())
        self._count(f"the curves of {lost:,} of {len(found):,} trials", lost, "none of their points is used")


def _keys(method: str, keys: Sequence[str]) -> list[str]:
    return check_texts(f"{method}: keys", keys, "a list of trials' keys", KEYS)

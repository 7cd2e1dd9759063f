"""Queries of a store. Each reads rows within a transaction and returns records."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import Boolean, Column, Connection, Row, Select, func, select, text
from sqlalchemy.exc import DBAPIError

from ablate.errors import NotFoundError, StoreError
from ablate.roles import TrialRole
from ablate.store.activity import left_behind
from ablate.store.failures import REPAIR, of_one_row
from ablate.store.records import (
    CurvePoint,
    Environment,
    PlannedTrial,
    Recording,
    SharedTrials,
    SpeedTiming,
    StudyRecord,
    StudySummary,
    TrialRecord,
    TrialState,
)
from ablate.store.rows import (
    POINT_COLUMNS,
    TRIAL_COLUMNS,
    read,
    read_curve,
    readable,
    study_values,
    timings_of,
    trial_record,
    unreadable_trial,
    variant_record,
)
from ablate.store.tables import (
    TIMED_AT,
    UtcDateTime,
    curves,
    environments,
    marks,
    recordings,
    studies,
    study_trials,
    study_variants,
    trials,
    variants,
)

_SUMMARIES = """
    SELECT studies.name, studies.question,
        (SELECT count(*) FROM study_variants WHERE study_variants.study_id = studies.id) AS variants,
        count(planned.state) AS planned,
        count(*) FILTER (WHERE planned.state = 'finished') AS finished,
        count(*) FILTER (WHERE planned.state = 'diverged') AS diverged,
        count(*) FILTER (WHERE planned.state = 'pruned') AS pruned,
        count(*) FILTER (WHERE planned.state = 'failed') AS failed,
        count(*) FILTER (WHERE planned.state = 'running') AS running,
        studies.updated_at,
        CAST(studies.space AS TEXT) LIKE '{"judged": %' AS judged
    FROM studies LEFT JOIN study_trials AS planned ON planned.study_id = studies.id
    GROUP BY studies.id
    ORDER BY studies.updated_at DESC, studies.name
"""
"""The columns are the fields of `StudySummary`."""
# Databases limit the number of values in a statement (SQLite: 32,766).
_CHUNK = 5_000


def summaries(connection: Connection) -> list[StudySummary]:
    """All studies, the latest first."""
    rows = connection.execute(text(_SUMMARIES).columns(updated_at=UtcDateTime, judged=Boolean))
    found = [StudySummary(**row) for row in rows.mappings()]
    if not any(summary.running for summary in found):
        return found
    running = list(connection.execute(select(trials.c.key).where(trials.c.state == TrialState.RUNNING)).scalars())
    dead = [key for chunk in chunks(running) for key in left_behind(connection, chunk)]
    of_study = (
        select(studies.c.name, func.count())
        .join(study_trials, study_trials.c.study_id == studies.c.id)
        .where(study_trials.c.trial_key.in_(dead))
        .group_by(studies.c.name)
    )
    waiting: dict[str, int] = {row[0]: row[1] for row in connection.execute(of_study)}
    return [replace(summary, running=summary.running - waiting.get(summary.name, 0)) for summary in found]


def study_row(connection: Connection, where: str, name: str) -> Row[Any]:
    """The row of a study.

    Raises:
        NotFoundError: There is no such study; the message suggests similar names and names the store by `where`.
    """
    row = connection.execute(select(studies).where(studies.c.name == name)).first()
    if row is not None:
        return row
    names = list(connection.execute(select(studies.c.name).order_by(studies.c.name)).scalars())
    near = difflib.get_close_matches(name, names)
    raise NotFoundError(
        f"there is no study {name!r}",
        where=where,
        expected=f"one of {', '.join(near or names[:10])}" if names else None,
        remedy="`ablate list` shows all studies." if names else "Run one: `ablate study FILE`.",
    )


def study_record(connection: Connection, where: str, row: Row[Any]) -> StudyRecord:
    """The record of a row of `studies`, with its variants and planned trials.

    Variants and planned trials that cannot be read are left out, and counted.

    Raises:
        StoreError: The row of the study or that of its baseline cannot be read.
    """
    variant_columns = (study_variants.c.name, study_variants.c.settings, study_variants.c.chosen, variants)
    variant_rows = connection.execute(
        select(*variant_columns)
        .outerjoin(variants, variants.c.hash == study_variants.c.variant_hash)
        .where(study_variants.c.study_id == row.id)
        .order_by(study_variants.c.position)
    )
    planned_rows = connection.execute(
        select(
            study_trials.c.trial_key,
            study_trials.c.variant,
            study_trials.c.seed,
            study_trials.c.role,
            study_trials.c.code,
        )
        .where(study_trials.c.study_id == row.id)
        .order_by(study_trials.c.position)
    )
    known = list(variant_rows.mappings())
    variant_records = []
    for row_ in known:
        with suppress(ValueError):
            variant_records.append(variant_record(row_))
    named = {variant.name for variant in variant_records}
    rows = [readable(PlannedTrial, {**row_, "key": row_["trial_key"]}) for row_ in planned_rows.mappings()]
    trials = [planned for planned in rows if planned is not None and planned.variant in named]
    compared = {planned.variant for planned in trials if not planned.role.scouts}
    scouts = {planned.variant for planned in trials if planned.role.scouts} - compared - {row.baseline}
    values = {
        **study_values(row._mapping),
        "variants": tuple(variant for variant in variant_records if variant.name not in scouts),
        "planned": tuple(planned for planned in trials if planned.role is TrialRole.COMPARISON),
        "scout_variants": tuple(variant for variant in variant_records if variant.name in scouts),
        "scout_trials": tuple(planned for planned in trials if planned.role.scouts),
        "confirm_trials": tuple(planned for planned in trials if planned.role is TrialRole.CONFIRMATION),
        "lost": len(rows) - len(trials),
        "studies": max(1, connection.execute(_WITH_RESULTS).scalar_one()),
    }
    try:
        study = read(StudyRecord, values)
        if (known or rows) and study.baseline not in named:
            raise ValueError("`baseline`: its variant cannot be read")
    except ValueError as error:
        raise StoreError(f"the study {row.name!r} cannot be read", where=where, got=str(error), remedy=REPAIR) from None
    return replace(study, shared=_shared_trials(connection, row))


def finished_by_variant(connection: Connection, study: int, role: TrialRole) -> dict[str, int]:
    """How many trials of a role each variant of a study has finished; those without any are left out."""
    rows = connection.execute(
        select(study_trials.c.variant, func.count())
        .where(study_trials.c.study_id == study, study_trials.c.state == TrialState.FINISHED)
        .where(study_trials.c.role == role)
        .group_by(study_trials.c.variant)
    )
    return {row[0]: row[1] for row in rows}


_WITH_RESULTS = select(func.count(study_trials.c.study_id.distinct())).where(
    study_trials.c.state == TrialState.FINISHED, study_trials.c.role == TrialRole.COMPARISON
)


def _shared_trials(connection: Connection, row: Row[Any]) -> tuple[SharedTrials, ...]:
    """Earlier studies that compared a variant with the baseline by two or more of the same trials of each."""
    other = study_trials.alias("other")
    rows = connection.execute(
        select(studies.c.name, study_trials.c.variant, func.count())
        .join(other, other.c.trial_key == study_trials.c.trial_key)
        .join(studies, studies.c.id == other.c.study_id)
        .where(study_trials.c.study_id == row.id, study_trials.c.state == TrialState.FINISHED)
        .where(study_trials.c.role == TrialRole.COMPARISON, other.c.role == TrialRole.COMPARISON)
        .where(other.c.study_id != row.id, studies.c.created_at < row.created_at)
        .group_by(studies.c.name, study_trials.c.variant)
        .order_by(studies.c.name, func.min(study_trials.c.position))
    )
    by_study: dict[str, dict[str, int]] = {}
    for name, variant, count in rows:
        by_study.setdefault(name, {})[variant] = count
    shared = []
    for name, counts in by_study.items():
        twice = [variant for variant, count in counts.items() if count > 1]
        if len(twice) > 1 and row.baseline in twice:
            shared.append(SharedTrials(name, tuple(variant for variant in twice if variant != row.baseline)))
    return tuple(shared)


def trials_of_keys(connection: Connection, keys: Sequence[str]) -> dict[str, TrialRecord]:
    """The trials that exist, by key."""
    lost: dict[str, str] = {}
    query = lambda chunk: select(*TRIAL_COLUMNS).where(trials.c.key.in_(chunk))  # noqa: E731
    records = trial_records(connection, list(in_chunks(connection, keys, query, lost)))
    return records | {key: unreadable_trial(key, problem) for key, problem in lost.items()}


def trial_records(connection: Connection, rows: Sequence[Row[Any]]) -> dict[str, TrialRecord]:
    """The records of rows with `TRIAL_COLUMNS`, by key. What a dead driver left as running waits for the next run."""
    ids = [*{row.environment_id for row in rows} - {None}]
    rows_of_ids = in_chunks(connection, ids, lambda chunk: select(environments).where(environments.c.id.in_(chunk)))
    environment: dict[int | None, Any] = {None: None}
    environment.update((row.id, readable(Environment, row.content) or row.content) for row in rows_of_ids)
    records = {row[0]: trial_record(row, environment) for row in rows}
    running = [key for key, record in records.items() if record.state is TrialState.RUNNING]
    for key in (key for chunk in chunks(running) for key in left_behind(connection, chunk)):
        records[key] = replace(records[key], state=TrialState.WAITING)
    return records


def points_of_keys(connection: Connection, keys: Sequence[str]) -> Iterator[tuple[str, tuple[CurvePoint, ...]]]:
    """Pairs of key and curve, ordered by step, of the trials that have points; () for a curve that cannot be read."""
    rows = in_chunks(
        connection,
        keys,
        lambda chunk: (
            select(curves.c.trial_key, *POINT_COLUMNS)
            .where(curves.c.trial_key.in_(chunk))
            .order_by(curves.c.trial_key, curves.c.step)
        ),
    )
    return _curves(rows)


def evaluations_of_keys(connection: Connection, keys: Sequence[str]) -> Iterator[tuple[str, tuple[CurvePoint, ...]]]:
    """The same, without the points that have no finite validation loss."""
    rows = in_chunks(
        connection,
        keys,
        lambda chunk: (
            select(curves.c.trial_key, *POINT_COLUMNS)
            .where(curves.c.trial_key.in_(chunk), func.abs(curves.c.val_loss) < math.inf)
            .order_by(curves.c.trial_key, curves.c.step)
        ),
    )
    return _curves(rows)


def _curves(rows: Iterator[Any]) -> Iterator[tuple[str, tuple[CurvePoint, ...]]]:
    for key, group in groupby(rows, key=itemgetter(0)):
        yield key, read_curve([row[1:] for row in group])


def recordings_of(connection: Connection, key: str) -> list[Recording | None]:
    """The recordings of a trial, by step; None for one that cannot be read."""
    query = select(recordings.c.step, recordings.c.content).where(
        recordings.c.trial_key == key, recordings.c.step != TIMED_AT
    )
    rows = connection.execute(query.order_by(recordings.c.step))
    return [readable(Recording, {"step": step, "values": content}) for step, content in rows]


def timings_of_keys(connection: Connection, keys: Sequence[str]) -> Iterator[tuple[str, tuple[SpeedTiming, ...]]]:
    """Key to the timings of a trial's variant, one for each baseline; () where they cannot be read."""
    rows = in_chunks(
        connection,
        keys,
        lambda chunk: select(recordings.c.trial_key, recordings.c.content).where(
            recordings.c.trial_key.in_(chunk), recordings.c.step == TIMED_AT
        ),
    )
    for key, content in rows:
        try:
            yield key, timings_of(content)
        except ValueError:
            yield key, ()


def keys_near(connection: Connection, prefix: str) -> list[str]:
    """Prefixes of the existing keys before and after a prefix that no key has."""
    key = trials.c.key
    around = (select(func.max(key)).where(key < prefix), select(func.min(key)).where(key > prefix))
    keys = [connection.execute(query).scalar() for query in around]
    return [str(near)[: max(12, len(prefix))] for near in keys if near is not None]


def next_position(connection: Connection, study: int, owner: Column[int], position: Column[int]) -> int:
    """The position after the last one of a study."""
    last = connection.execute(select(func.max(position)).where(owner == study)).scalar()
    return 0 if last is None else last + 1


def chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The values in chunks that fit into one statement."""
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK]


def in_chunks(
    connection: Connection,
    values: Sequence[Any],
    query: Callable[[Sequence[Any]], Select[Any]],
    lost: dict[Any, str] | None = None,
) -> Iterator[Any]:
    """The rows of a query that is run for chunks of values.

    Args:
        connection: Connection with an open transaction.
        values: For which rows are read.
        query: The query for some of them.
        lost: Takes each value whose row the database cannot read (too long, not UTF-8, a damaged page), and why; if
            None, that raises the error of the database.
    """
    for chunk in chunks(values):
        yield from _rows_of(connection, chunk, query, lost)


def _rows_of(
    connection: Connection,
    values: Sequence[Any],
    query: Callable[[Sequence[Any]], Select[Any]],
    lost: dict[Any, str] | None,
) -> Iterator[Any]:
    try:
        yield from connection.execute(query(values)).all()
    except DBAPIError as error:
        if lost is None or not of_one_row(error):
            raise
        if len(values) == 1:
            lost[values[0]] = str(error.orig).partition("\n")[0][:100]
            return
        middle = len(values) // 2
        for half in (values[:middle], values[middle:]):
            yield from _rows_of(connection, half, query, lost)


def own_trials(connection: Connection, study: int) -> tuple[list[str], list[str]]:
    """The keys of a study's stored trials: those that no other study plans, and the others."""
    other = study_trials.alias()
    elsewhere = select(other.c.trial_key).where(other.c.trial_key == trials.c.key, other.c.study_id != study).exists()
    planned = study_trials.join(trials, trials.c.key == study_trials.c.trial_key)
    rows = connection.execute(
        select(trials.c.key, elsewhere.label("shared")).select_from(planned).where(study_trials.c.study_id == study)
    ).all()
    return [row.key for row in rows if not row.shared], [row.key for row in rows if row.shared]


def delete_study(connection: Connection, study: int) -> list[str]:
    """Remove a study by its number, and the trials that no other study plans; the keys of those."""
    name = connection.execute(select(studies.c.name).where(studies.c.id == study)).scalar_one()
    own, _ = own_trials(connection, study)
    for chunk in chunks(own):
        connection.execute(trials.delete().where(trials.c.key.in_(chunk)))
        connection.execute(marks.delete().where(marks.c.kind == "trial", marks.c.name.in_(chunk)))
    connection.execute(study_trials.delete().where(study_trials.c.study_id == study))
    connection.execute(study_variants.delete().where(study_variants.c.study_id == study))
    connection.execute(studies.delete().where(studies.c.id == study))
    connection.execute(marks.delete().where(marks.c.kind == "study", marks.c.name == name))
    named = select(study_variants.c.variant_hash).union(select(trials.c.variant_hash))
    connection.execute(variants.delete().where(variants.c.hash.not_in(named)))
    return own

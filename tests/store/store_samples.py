"""Helpers that write records, and that read them without the store, by SQL."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, inspect, text

from ablate.store import (
    CurvePoint,
    Environment,
    PlannedTrial,
    Recording,
    Store,
    StudyDraft,
    TrialOutcome,
    TrialRecord,
    TrialState,
    VariantRecord,
)

HERE = Environment(
    versions={"python": "3.12.1", "torch": "2.13.0"},
    device="cpu: AMD EPYC, 2 cores",
    host="lab",
    git_commit="0f" * 20,
    git_clean=False,
    command="ablate study spaces/simplify_block.yaml",
)
STARTED = datetime(2025, 3, 30, 2, 30, 0, 123456, tzinfo=timezone(timedelta(hours=2)))


def digest(text: object) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()


def variant(name: str, **settings: str) -> VariantRecord:
    return VariantRecord(name, digest(name), settings, {"model": {"depth": 6}, "task": {}, "training": {}}, 1_000_003)


def planned(name: str, seed: int) -> PlannedTrial:
    return PlannedTrial(digest((name, seed)), name, seed)


def draft(name: str = "simplify_block", baseline: str = "baseline") -> StudyDraft:
    return StudyDraft(
        name=name,
        question="Which parts can go?",
        source="arXiv:2311.01906",
        space={"name": name, "design": {"kind": "leave_one_out", "seeds": 3}},
        text=f"name: {name}\n",
        objective={"metric": "val_loss", "direction": "minimize", "margin": 0.02},
        baseline=baseline,
        trivial={"unigram": {"val_loss": 6.25}, "bigram": {"val_loss": 4.5}},
    )


def curve(points: int, slope: float = 0.125) -> tuple[CurvePoint, ...]:
    return tuple(
        CurvePoint(
            step=10 * i,
            seconds=0.5 * i,
            tokens=20_480 * i,
            flops=1.5e12 * i,
            train_loss=None if i == 0 else 7.625 - slope * i,
            val_loss=7.75 - slope * i if i % 2 == 0 else None,
        )
        for i in range(points)
    )


def outcome(name: str, seed: int, state: TrialState = TrialState.FINISHED, points: int = 5) -> TrialOutcome:
    finished = state is TrialState.FINISHED
    return TrialOutcome(
        key=digest((name, seed)),
        variant_hash=digest(name),
        seed=seed,
        state=state,
        metrics={"val_loss": 3.25 + seed} if finished else {},
        steps=300,
        seconds=12.5,
        tokens=614_400,
        flops=4.5e13,
        stopped_at=17 if state is TrialState.DIVERGED else None,
        reason="" if finished else "The loss was not finite.",
        data_fingerprint=digest("data"),
        started_at=STARTED,
        finished_at=STARTED + timedelta(seconds=15),
        curve=curve(points),
        recordings=recordings(points),
    )


def recordings(points: int) -> tuple[Recording, ...]:
    return tuple(
        Recording(10 * i, {"weights": {"block 1 mixer": 2.5 + i}, "map": {"block 1 mixer": [[1.0, None], [0.25, 0.5]]}})
        for i in range(points)
    )


def as_record(written: TrialOutcome, environment: Environment = HERE) -> TrialRecord:
    """The expected record of a trial whose outcome was written: every field that both have."""
    same = {one.name for one in fields(TrialRecord)} & {one.name for one in fields(TrialOutcome)}
    return TrialRecord(**{name: getattr(written, name) for name in same}, environment=environment)


def begin(store: Store, names: Sequence[str] = ("baseline", "no_norm"), seeds: int = 2, study: str = "s") -> None:
    store.begin_study(
        draft(study, names[0]),
        [variant(name) for name in names],
        [planned(name, seed) for name in names for seed in range(seeds)],
    )


def start(store: Store, name: str, seed: int) -> str:
    key = digest((name, seed))
    store.record_started(key, digest(name), seed, digest("data"), HERE)
    return key


@contextmanager
def sql(location: str | Path) -> Iterator[Connection]:
    """A transaction without the store."""
    engine = create_engine(str(location) if "://" in str(location) else f"sqlite:///{location}")
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def now() -> datetime:
    return datetime.now(UTC)


def description(connection: Connection) -> dict[str, dict[str, Any]]:
    """All that defines the tables of a database except the order of their columns."""
    tables = inspect(connection)
    options: dict[str, list[Any]] = {}  # WITHOUT ROWID and STRICT, which SQLAlchemy before 2.1 does not reflect
    if connection.dialect.name == "sqlite":
        options = {row.name: [row.wr, row.strict] for row in connection.execute(text("PRAGMA table_list"))}
    return {
        name: {
            "columns": {
                column["name"]: (str(column["type"]), column["nullable"], column["default"])
                for column in tables.get_columns(name)
            },
            "primary key": tables.get_pk_constraint(name),
            "foreign keys": by_name(tables.get_foreign_keys(name)),
            "unique": by_name(tables.get_unique_constraints(name)),
            "indexes": by_name(tables.get_indexes(name)),
            "options": options.get(name),
        }
        for name in tables.get_table_names()
    }


def by_name(constraints: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(constraints, key=lambda constraint: str(constraint["name"]))

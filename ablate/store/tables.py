"""The tables of a store, in types that SQLite and PostgreSQL share.

The newest migration in `migrations/versions` and this file say the same; a test compares them.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    text,
)
from sqlalchemy.engine import Dialect

from ablate.roles import TrialRole
from ablate.store.records import TrialState


class UtcDateTime(TypeDecorator[datetime]):
    """An aware datetime, stored in UTC. SQLite has no time zones, so there it is stored without one."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Aware datetime to UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time in the store needs a time zone, got {value!r}")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """What the database gives to aware UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class FreeText(TypeDecorator[str]):
    """Text that people or tracebacks wrote. What no database can hold (NUL, lone surrogates) becomes U+FFFD."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Text that every database takes."""
        if value is None:
            return None
        return value.replace("\0", "�").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class State(TypeDecorator[TrialState]):
    """The state of a trial, stored as its word."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: TrialState | None, dialect: Dialect) -> str | None:
        """State to word."""
        return None if value is None else value.value

    def process_result_value(self, value: str | None, dialect: Dialect) -> TrialState | None:
        """Word to state."""
        return None if value is None else TrialState(value)


class Role(TypeDecorator[TrialRole]):
    """What a study trains a trial for, stored as its word."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: TrialRole | None, dialect: Dialect) -> str | None:
        """Role to word."""
        return None if value is None else value.value

    def process_result_value(self, value: str | None, dialect: Dialect) -> TrialRole | None:
        """Word to role."""
        return None if value is None else TrialRole(value)


metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

studies = Table(
    "studies",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String, nullable=False, unique=True),
    Column("question", FreeText, nullable=False),
    Column("source", FreeText, nullable=False),
    Column("space", JSON, nullable=False),
    Column("text", FreeText, nullable=False),
    Column("objective", JSON, nullable=False),
    Column("baseline", String, nullable=False),
    Column("trivial", JSON),
    Column("declared_before", JSON(none_as_null=True)),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
)

variants = Table(
    "variants",
    metadata,
    Column("hash", String, primary_key=True),
    Column("spec", JSON, nullable=False),
    Column("parameters", BigInteger, nullable=False),
    Column("activation_bytes", BigInteger),
)

study_variants = Table(
    "study_variants",
    metadata,
    Column("study_id", ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("variant_hash", ForeignKey("variants.hash"), nullable=False),
    Column("settings", JSON, nullable=False),
)

environments = Table(
    "environments",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("hash", String, nullable=False, unique=True),
    Column("content", JSON, nullable=False),
)

trials = Table(
    "trials",
    metadata,
    Column("key", String, primary_key=True),
    Column("variant_hash", ForeignKey("variants.hash"), nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("state", State, nullable=False),
    Column("metrics", JSON, nullable=False),
    Column("steps", BigInteger, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("flops", Double, nullable=False),
    Column("stopped_at", BigInteger),
    Column("reason", FreeText, nullable=False),
    Column("data_fingerprint", String, nullable=False),
    Column("started_at", UtcDateTime),
    Column("finished_at", UtcDateTime),
    Column("environment_id", ForeignKey("environments.id")),
    # Token of the lease of the driver that has it run, which is the trial's lease too; empty: of none.
    Column("driver", String, nullable=False, server_default=text("''")),
    Column("attempts", Integer, nullable=False, server_default="1"),
    Column("worker", JSON(none_as_null=True)),
)

# The trials a study planned. A trial that waits has no row in `trials`, so `trial_key` refers to none. `state` is that
# of the trial again, as looking 100,000 keys up for each `ablate list` takes longer than keeping it.
study_trials = Table(
    "study_trials",
    metadata,
    Column("study_id", Integer, primary_key=True),
    Column("trial_key", String, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("variant", String, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("state", State, nullable=False, server_default=TrialState.WAITING.value),
    Column("role", Role, nullable=False, server_default=TrialRole.COMPARISON.value),
    ForeignKeyConstraint(["study_id", "variant"], ["study_variants.study_id", "study_variants.name"]),
    Index("ix_study_trials_trial_key", "trial_key"),
    Index("ix_study_trials_study_id_state", "study_id", "state"),
    sqlite_with_rowid=False,
)

curves = Table(
    "curves",
    metadata,
    Column("trial_key", ForeignKey("trials.key", ondelete="CASCADE"), primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("seconds", Double, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("flops", Double, nullable=False),
    Column("train_loss", Double),
    Column("val_loss", Double),
    sqlite_with_rowid=False,
)

# What was recorded inside the model of a trial, for those who look at that trial alone.
recordings = Table(
    "recordings",
    metadata,
    Column("trial_key", ForeignKey("trials.key", ondelete="CASCADE"), primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("content", JSON, nullable=False),
    sqlite_with_rowid=False,
)

# At most one row for each study: the driver that runs it. A lease may be older than the study's first row.
leases = Table(
    "leases",
    metadata,
    Column("study", String, primary_key=True),
    Column("token", String, nullable=False),
    Column("host", String, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("process_started", Double, nullable=False),
    Column("acquired_at", UtcDateTime, nullable=False),
    Column("heartbeat", UtcDateTime, nullable=False),
    Column("processes", String, nullable=False, server_default=text("''")),
)

# What people write by hand: `kind` is study or trial, `name` a study's name or a trial's key; neither need exist.
marks = Table(
    "marks",
    metadata,
    Column("kind", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("starred", Boolean, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("note", FreeText, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
)

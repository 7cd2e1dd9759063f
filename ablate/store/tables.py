"""The tables of a store, with types that SQLite and PostgreSQL share.

A new store gets these tables at once, an older one by the migrations in `migrations/versions`. A test checks that both
have the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
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
    false,
    text,
)
from sqlalchemy.engine import Dialect

from ablate.roles import TrialRole
from ablate.store.records import TrialState


def parse_json(text: str) -> Any:
    """The value of a JSON text; what is not JSON, or nested more than 200 levels deep, stays a text."""
    from pydantic_core import from_json

    try:
        return from_json(text)
    except (ValueError, TypeError):
        return text


class UtcDateTime(TypeDecorator[datetime]):
    """A time-zone-aware datetime, stored in UTC (in SQLite without a time zone).

    A stored value that is not a time is returned unchanged.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time in the store needs a time zone, got {value!r}")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Leave what is not a time, as a damaged store may hold, for the reader of the row to refuse."""
        convert = super().result_processor(dialect, coltype)

        def converted(value: Any) -> Any:
            try:
                return convert(value) if convert is not None else value
            except (ValueError, TypeError):
                return value

        return converted

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to an aware datetime in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class FreeText(TypeDecorator[str]):
    """Text of users or tracebacks. NUL and lone surrogates, which databases cannot store, become U+FFFD."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        """Replace characters that databases cannot store."""
        text: str = value.replace("\0", "�")
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class _Word(TypeDecorator[Any]):
    """A member of an enumeration, stored as its value."""

    impl = String
    cache_ok = True
    members: Mapping[str, Enum]

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """Convert to the value."""
        return value.value

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """The member of a word; an unknown word is returned unchanged."""
        return self.members.get(value, value)


class State(_Word):
    """The state of a trial."""

    cache_ok = True
    members: Mapping[str, Enum] = {state.value: state for state in TrialState}


class Role(_Word):
    """What a study trains a trial for."""

    cache_ok = True
    members: Mapping[str, Enum] = {role.value: role for role in TrialRole}


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
    Column("traits", JSON(none_as_null=True)),
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
    Column("chosen", Boolean, nullable=False, server_default=false()),
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
    # Token of the lease of the driver that runs the trial; empty: none.
    Column("driver", String, nullable=False, server_default=text("''")),
    Column("attempts", Integer, nullable=False, server_default="1"),
    Column("worker", JSON(none_as_null=True)),
    # Hash of the code that trained it, in `codes`; empty: kinds of ablate alone, or not recorded.
    Column("code", String, nullable=False, server_default=text("''")),
)

# What a hash of code stands for: the users' kinds with their files, and the digests of their functions.
codes = Table(
    "codes",
    metadata,
    Column("hash", String, primary_key=True),
    Column("content", JSON, nullable=False),
)

# The planned trials of each study. Waiting trials have no row in `trials`, so `trial_key` is not a foreign key. `state`
# duplicates that of `trials`, because `ablate list` would otherwise look up 100,000 keys.
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
    # Hash of the code with which it was planned: another than that of the trial if that was accepted.
    Column("code", String, nullable=False, server_default=text("''")),
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

# Quantities recorded inside the model of a trial; read only for single trials.
TIMED_AT = -1
"""The step of a row of `recordings` that is not of the trial itself: how fast its variant trains, by the content hash
of the baseline beside which that was timed."""

recordings = Table(
    "recordings",
    metadata,
    Column(
        "trial_key",
        ForeignKey("trials.key", name="fk_recordings_trial_key_trials", ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("step", BigInteger, primary_key=True),
    Column("content", JSON, nullable=False),
    sqlite_with_rowid=False,
)

# The driver of each running study. A lease may exist before the row of its study.
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

# User annotations: `kind` is study or trial; `name` is the name of a study or the key of a trial, which need not exist.
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


# The table in which Alembic keeps the revision of a database.
_REVISION = """
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)
"""


def create_tables(connection: Connection, revision: str) -> None:
    """Create all tables in an empty database, inside the caller's transaction."""
    metadata.create_all(connection, checkfirst=False)
    connection.execute(text(_REVISION))
    connection.execute(text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": revision})

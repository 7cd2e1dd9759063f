"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "studies",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("question", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("space", sa.JSON, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("objective", sa.JSON, nullable=False),
        sa.Column("baseline", sa.String, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_studies"),
        sa.UniqueConstraint("name", name="uq_studies_name"),
    )
    op.create_table(
        "variants",
        sa.Column("hash", sa.String, nullable=False),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("parameters", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_variants"),
    )
    op.create_table(
        "study_variants",
        sa.Column("study_id", sa.Integer, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("variant_hash", sa.String, nullable=False),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("study_id", "name", name="pk_study_variants"),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name="fk_study_variants_study_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["variant_hash"], ["variants.hash"], name="fk_study_variants_variant_hash"),
    )
    op.create_table(
        "environments",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("hash", sa.String, nullable=False),
        sa.Column("content", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_environments"),
        sa.UniqueConstraint("hash", name="uq_environments_hash"),
    )
    op.create_table(
        "trials",
        sa.Column("key", sa.String, nullable=False),
        sa.Column("variant_hash", sa.String, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("metrics", sa.JSON, nullable=False),
        sa.Column("steps", sa.BigInteger, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("flops", sa.Double, nullable=False),
        sa.Column("stopped_at", sa.BigInteger),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("data_fingerprint", sa.String, nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.Column("environment_id", sa.Integer),
        sa.PrimaryKeyConstraint("key", name="pk_trials"),
        sa.ForeignKeyConstraint(["variant_hash"], ["variants.hash"], name="fk_trials_variant_hash"),
        sa.ForeignKeyConstraint(["environment_id"], ["environments.id"], name="fk_trials_environment_id"),
    )
    op.create_index("ix_trials_key_state", "trials", ["key", "state"])
    op.create_table(
        "study_trials",
        sa.Column("study_id", sa.Integer, nullable=False),
        sa.Column("trial_key", sa.String, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("variant", sa.String, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("study_id", "trial_key", name="pk_study_trials"),
        sa.ForeignKeyConstraint(
            ["study_id", "variant"],
            ["study_variants.study_id", "study_variants.name"],
            name="fk_study_trials_study_id_variant",
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "curves",
        sa.Column("trial_key", sa.String, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("flops", sa.Double, nullable=False),
        sa.Column("train_loss", sa.Double),
        sa.Column("val_loss", sa.Double),
        sa.PrimaryKeyConstraint("trial_key", "step", name="pk_curves"),
        sa.ForeignKeyConstraint(["trial_key"], ["trials.key"], name="fk_curves_trial_key", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "leases",
        sa.Column("study", sa.String, nullable=False),
        sa.Column("token", sa.String, nullable=False),
        sa.Column("host", sa.String, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("process_started", sa.Double, nullable=False),
        sa.Column("acquired_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("heartbeat", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("study", name="pk_leases"),
    )

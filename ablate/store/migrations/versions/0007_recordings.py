"""Store recordings from inside the models of trials."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "recordings",
        sa.Column("trial_key", sa.String, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("content", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("trial_key", "step", name="pk_recordings"),
        sa.ForeignKeyConstraint(
            ["trial_key"], ["trials.key"], name="fk_recordings_trial_key_trials", ondelete="CASCADE"
        ),
        sqlite_with_rowid=False,
    )

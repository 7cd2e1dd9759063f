"""The code that trained a trial, and that with which a study planned it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns and the table; empty for existing trials, of which only those of users' kinds are affected."""
    for table in ("trials", "study_trials"):
        op.add_column(table, sa.Column("code", sa.String, nullable=False, server_default=sa.text("''")))
    op.create_table(
        "codes",
        sa.Column("hash", sa.String, nullable=False),
        sa.Column("content", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_codes"),
    )

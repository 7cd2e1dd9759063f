"""Store the driver of a trial, its worker, and how often it was started."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; trials that older versions left running have no driver."""
    op.add_column("trials", sa.Column("driver", sa.String, nullable=False, server_default=sa.text("''")))
    op.add_column("trials", sa.Column("attempts", sa.Integer, nullable=False, server_default="1"))
    op.add_column("trials", sa.Column("worker", sa.JSON))

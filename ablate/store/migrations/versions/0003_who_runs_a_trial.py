"""Who runs a trial: its driver, where it trains, and how often it was begun."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; what older versions left as running belongs to no driver."""
    op.add_column("trials", sa.Column("driver", sa.String, nullable=False, server_default=sa.text("''")))
    op.add_column("trials", sa.Column("attempts", sa.Integer, nullable=False, server_default="1"))
    op.add_column("trials", sa.Column("worker", sa.JSON))

"""In which table of processes the number of a lease's holder stands; unknown of those that are held already."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("leases", sa.Column("processes", sa.String, nullable=False, server_default=sa.text("''")))

"""Store the process table of a lease's driver, and former declarations of studies."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; unknown for existing rows."""
    op.add_column("leases", sa.Column("processes", sa.String, nullable=False, server_default=sa.text("''")))
    op.add_column("studies", sa.Column("declared_before", sa.JSON))

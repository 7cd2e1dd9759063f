"""In which table of processes the holder of a lease stands, and what studies declared before they were changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; of what is stored already neither is known."""
    op.add_column("leases", sa.Column("processes", sa.String, nullable=False, server_default=sa.text("''")))
    op.add_column("studies", sa.Column("declared_before", sa.JSON))

"""Store the trivial baselines of a study; existing studies have none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("studies", sa.Column("trivial", sa.JSON))

"""Store the activation bytes of variants; unknown for existing ones."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("variants", sa.Column("activation_bytes", sa.BigInteger))

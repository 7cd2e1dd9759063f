"""What a study trains a trial for: a column, where the seed alone said it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. Until now seeds from 1000 on tuned, and 2000 to 2002 timed; no comparison had one of them."""
    op.add_column("study_trials", sa.Column("role", sa.String, nullable=False, server_default="comparison"))
    op.execute("UPDATE study_trials SET role = 'tuning' WHERE seed >= 1000")
    op.execute("UPDATE study_trials SET role = 'timing' WHERE seed BETWEEN 2000 AND 2002")

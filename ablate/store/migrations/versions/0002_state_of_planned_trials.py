"""Store the state of each planned trial in its plan, so that a summary of all studies reads one index."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, fill it from the trials, and index it."""
    op.add_column("study_trials", sa.Column("state", sa.String, nullable=False, server_default="waiting"))
    op.execute(
        "UPDATE study_trials SET state = (SELECT trials.state FROM trials WHERE trials.key = study_trials.trial_key)"
        " WHERE EXISTS (SELECT 1 FROM trials WHERE trials.key = study_trials.trial_key)"
    )
    op.create_index("ix_study_trials_trial_key", "study_trials", ["trial_key"])
    op.create_index("ix_study_trials_study_id_state", "study_trials", ["study_id", "state"])
    # It was used only to count the trials of a study by state.
    op.drop_index("ix_trials_key_state", "trials")

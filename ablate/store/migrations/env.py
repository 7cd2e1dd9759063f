"""Alembic environment: runs the migrations on the connection that `upgrade` passes. Does not configure logging."""

from __future__ import annotations

from alembic import context

from ablate.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite cannot alter columns; in batch mode Alembic creates a new table and copies the rows.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()

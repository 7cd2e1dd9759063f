"""What Alembic runs: the migrations on the connection that `upgrade` hands over. Configures no logging."""

from __future__ import annotations

from alembic import context

from ablate.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite cannot change a column in place; Alembic then makes a new table and moves the rows.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()

"""The oldest schema that is migrated. No released version wrote an older one."""

from __future__ import annotations

revision = "0009"
down_revision = None
branch_labels = None
depends_on = None

"""Store what the design of a study declares, and which variants results led to, where the name of its kind said it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

CHOOSING = ("search", "simplify")
ADDING_SEEDS = ("add_one_in", "grid", "leave_one_out", "sweep")


def upgrade() -> None:
    """Add the columns. Designs of plugins that chose by results were unknown; their variants stay as they were."""
    op.add_column("studies", sa.Column("traits", sa.JSON))
    op.add_column("study_variants", sa.Column("chosen", sa.Boolean, nullable=False, server_default=sa.false()))
    studies = sa.table(
        "studies",
        sa.column("id", sa.Integer),
        sa.column("space", sa.JSON),
        sa.column("baseline", sa.String),
        sa.column("traits", sa.JSON),
    )
    variants = sa.table(
        "study_variants",
        sa.column("study_id", sa.Integer),
        sa.column("name", sa.String),
        sa.column("settings", sa.JSON),
        sa.column("chosen", sa.Boolean),
    )
    connection = op.get_bind()
    for study, space, baseline in connection.execute(
        sa.select(studies.c.id, studies.c.space, studies.c.baseline)
    ).all():
        design = space.get("design", {})
        kind = design.get("kind")
        if kind is None:
            continue
        traits = {
            "chooses": kind in CHOOSING,
            "adds_seeds": kind in ADDING_SEEDS,
            "plans_points": kind not in (*CHOOSING, "population"),
            "sets_values": kind in ("population", "sweep") or bool(design.get("ranges")),
            "finds_best": kind == "search" and len(design.get("objectives", ())) < 2,
        }
        connection.execute(sa.update(studies).where(studies.c.id == study).values(traits=traits))
        if kind in CHOOSING:
            mine = variants.c.study_id == study
            settings = dict(connection.execute(sa.select(variants.c.name, variants.c.settings).where(mine)).all())
            for name in _chosen(kind, settings, baseline, space.get("variants", {})):
                connection.execute(sa.update(variants).where(mine, variants.c.name == name).values(chosen=True))


def _chosen(
    kind: str, settings: Mapping[str, Mapping[str, str]], baseline: str, named: Mapping[str, object]
) -> Iterator[str]:
    """The variants of a search that its space does not name; those of `simplify` that remove more than one part."""
    for name, own in settings.items():
        changed = sum(setting != settings[baseline].get(switch) for switch, setting in own.items())
        if name != baseline and (name not in named if kind == "search" else changed > 1):
            yield name

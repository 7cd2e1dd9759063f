"""The store: studies, variants, trials and curves in SQLite or PostgreSQL. The only place that opens a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.late import late
from ablate.store.records import (
    CurvePoint,
    Environment,
    Mark,
    PlannedTrial,
    Recording,
    StudyDraft,
    StudyRecord,
    StudySummary,
    TrialOutcome,
    TrialRecord,
    TrialState,
    VariantRecord,
    WorkerRecord,
)
from ablate.store.summaries import list_studies

if TYPE_CHECKING:
    from ablate.store.leases import Lease
    from ablate.store.store import Store, open_store

__all__ = [
    "CurvePoint",
    "Environment",
    "Lease",
    "Mark",
    "PlannedTrial",
    "Recording",
    "Store",
    "StudyDraft",
    "StudyRecord",
    "StudySummary",
    "TrialOutcome",
    "TrialRecord",
    "TrialState",
    "VariantRecord",
    "WorkerRecord",
    "list_studies",
    "open_store",
]

# Imported on first use: importing SQLAlchemy takes longer than listing the studies.
__getattr__, __dir__ = late(
    __name__,
    {"Lease": "ablate.store.leases", "Store": "ablate.store.store", "open_store": "ablate.store.store"},
)

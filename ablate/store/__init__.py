"""The store: studies, variants, trials and curves in SQLite or PostgreSQL. The only place that opens a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.lazy_imports import lazy_names
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

if TYPE_CHECKING:
    from ablate.store.store import Store, open_store

__all__ = [
    "CurvePoint",
    "Environment",
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
    "open_store",
]

# Imported on first use: what only names records needs no SQLAlchemy.
__getattr__, __dir__ = lazy_names(
    __name__,
    {"Store": "ablate.store.store", "open_store": "ablate.store.store"},
)

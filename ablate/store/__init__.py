"""The store: studies, variants, trials and curves in SQLite or PostgreSQL. The only place that opens a database."""

from ablate.store.leases import Lease
from ablate.store.records import (
    CurvePoint,
    Environment,
    PlannedTrial,
    StudyDraft,
    StudyRecord,
    StudySummary,
    TrialOutcome,
    TrialRecord,
    TrialState,
    VariantRecord,
    WorkerRecord,
)
from ablate.store.store import Store, open_store

__all__ = [
    "CurvePoint",
    "Environment",
    "Lease",
    "PlannedTrial",
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

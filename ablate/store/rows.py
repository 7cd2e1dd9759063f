"""Records to rows and back."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from ablate.store.records import (
    CurvePoint,
    Declaration,
    Environment,
    PlannedTrial,
    Recording,
    TrialOutcome,
    TrialRecord,
    VariantRecord,
    WorkerRecord,
)
from ablate.store.tables import curves, trials

# The columns of a curve in the order of the fields of `CurvePoint`.
POINT_COLUMNS = tuple(curves.c[field.name] for field in fields(CurvePoint))
# Those of a record that its row has too; the curve and the environment are rows of their own.
_OUTCOME = tuple(field.name for field in fields(TrialOutcome) if field.name not in ("curve", "recordings"))
_KEPT_APART = {"environment": "environment_id"}
# The columns of a trial in the order of the fields of `TrialRecord`; its environment is a row of its own.
TRIAL_COLUMNS = tuple(trials.c[_KEPT_APART.get(field.name, field.name)] for field in fields(TrialRecord))
_ENVIRONMENT, _WORKER = (
    [field.name for field in fields(TrialRecord)].index(name) for name in ("environment", "worker")
)


def variant_row(variant: VariantRecord) -> dict[str, Any]:
    """The row of `variants`, which all studies share."""
    return {
        "hash": variant.hash,
        "spec": variant.spec,
        "parameters": variant.parameters,
        "activation_bytes": variant.activation_bytes,
    }


def study_variant_row(study: int, position: int, variant: VariantRecord) -> dict[str, Any]:
    """The row of `study_variants`."""
    return {
        "study_id": study,
        "position": position,
        "name": variant.name,
        "variant_hash": variant.hash,
        "settings": variant.settings,
    }


def study_trial_row(study: int, position: int, planned: PlannedTrial) -> dict[str, Any]:
    """The row of `study_trials`."""
    return {
        "study_id": study,
        "position": position,
        "trial_key": planned.key,
        "variant": planned.variant,
        "seed": planned.seed,
        "role": planned.role,
    }


def declaration_row(declared: Declaration) -> dict[str, Any]:
    """An item of the column `declared_before` of `studies`."""
    return {**asdict(declared), "until": declared.until.isoformat()}


def declaration(row: Mapping[str, Any]) -> Declaration:
    """The declaration of such an item."""
    return Declaration(**{**row, "until": datetime.fromisoformat(row["until"])})


def outcome_row(outcome: TrialOutcome) -> dict[str, Any]:
    """The row of `trials`, but for its environment."""
    return {name: getattr(outcome, name) for name in _OUTCOME}


def point_rows(key: str, points: Iterable[CurvePoint]) -> list[dict[str, Any]]:
    """The rows of `curves`. A loss that is no number is stored as none: SQLite has no NaN."""
    return [
        {
            "trial_key": key,
            "step": point.step,
            "seconds": point.seconds,
            "tokens": point.tokens,
            "flops": point.flops,
            "train_loss": _number(point.train_loss),
            "val_loss": _number(point.val_loss),
        }
        for point in points
    ]


def recording_rows(key: str, recordings: Iterable[Recording]) -> list[dict[str, Any]]:
    """The rows of `recordings`, to four significant digits."""
    return [{"trial_key": key, "step": one.step, "content": _short(one.values)} for one in recordings]


def environment_row(environment: Environment) -> dict[str, Any]:
    """The row of `environments`; equal environments have equal hashes."""
    content = asdict(environment)
    text = json.dumps(content, sort_keys=True)
    return {"hash": hashlib.sha256(text.encode()).hexdigest(), "content": content}


def trial_record(row: Row[Any], environments: Mapping[int | None, Environment | None]) -> TrialRecord:
    """The record of a row with `TRIAL_COLUMNS`; by their places, as there may be 10,000 rows."""
    values: list[Any] = list(row)
    values[_ENVIRONMENT] = environments[values[_ENVIRONMENT]]
    if values[_WORKER] is not None:
        values[_WORKER] = WorkerRecord(**values[_WORKER])
    return TrialRecord(*values)


def _short(value: Any) -> Any:
    """Plain data with short numbers; JSON in a database has none that are not finite."""
    if isinstance(value, Mapping):
        return {name: _short(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_short(item) for item in value]
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None


def _number(loss: float | None) -> float | None:
    return None if loss is None or math.isnan(loss) else loss

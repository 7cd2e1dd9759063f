"""Convert records to rows and back."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from ablate.store.records import (
    WINDOWS,
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

# Columns of a curve in the order of the fields of `CurvePoint`.
POINT_COLUMNS = tuple(curves.c[name] for name in CurvePoint._fields)
# Fields of an outcome that are columns of its row; curve and recordings are in other tables.
_OUTCOME = tuple(field.name for field in fields(TrialOutcome) if field.name not in ("curve", "recordings", "parts"))
_REFERENCES = {"environment": "environment_id"}
# Columns of a trial in the order of the fields of `TrialRecord`; the environment is in another table.
# Metrics over parts of the validation data are in the column of the metrics, under this key.
_PARTS = "@parts"
_STORED = tuple(field.name for field in fields(TrialRecord) if field.name != "parts")
TRIAL_COLUMNS = tuple(trials.c[_REFERENCES.get(name, name)] for name in _STORED)
_METRICS, _ENVIRONMENT, _WORKER = (_STORED.index(name) for name in ("metrics", "environment", "worker"))


def variant_row(variant: VariantRecord) -> dict[str, Any]:
    """The row in `variants`, which all studies share."""
    return {
        "hash": variant.hash,
        "spec": variant.spec,
        "parameters": variant.parameters,
        "activation_bytes": variant.activation_bytes,
    }


def study_variant_row(study: int, position: int, variant: VariantRecord) -> dict[str, Any]:
    """The row in `study_variants`."""
    return {
        "study_id": study,
        "position": position,
        "name": variant.name,
        "variant_hash": variant.hash,
        "settings": variant.settings,
        "chosen": variant.chosen,
    }


def study_trial_row(study: int, position: int, planned: PlannedTrial) -> dict[str, Any]:
    """The row in `study_trials`."""
    return {
        "study_id": study,
        "position": position,
        "trial_key": planned.key,
        "variant": planned.variant,
        "seed": planned.seed,
        "role": planned.role,
        "code": planned.code,
    }


def declaration_row(declared: Declaration) -> dict[str, Any]:
    """An item of the column `declared_before` of `studies`."""
    return {**asdict(declared), "until": declared.until.isoformat()}


def declaration(row: Mapping[str, Any]) -> Declaration:
    """The declaration of an item of the column `declared_before`."""
    return Declaration(**{**row, "until": datetime.fromisoformat(row["until"])})


def outcome_row(outcome: TrialOutcome) -> dict[str, Any]:
    """The row in `trials`, without its environment."""
    row = {name: getattr(outcome, name) for name in _OUTCOME}
    parts = {name: list(values) for name, values in outcome.parts.items()}
    return {**row, "metrics": {**outcome.metrics, _PARTS: parts}} if parts else row


def point_rows(key: str, points: Iterable[CurvePoint]) -> list[dict[str, Any]]:
    """The rows in `curves`. NaN is stored as NULL because SQLite has no NaN."""
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
    """The rows in `recordings`, rounded to four significant digits, those of windows to twelve: they are compared."""
    return [
        {
            "trial_key": key,
            "step": recording.step,
            "content": {name: _round(item, 12 if name == WINDOWS else 4) for name, item in recording.values.items()},
        }
        for recording in recordings
    ]


def environment_row(environment: Environment) -> dict[str, Any]:
    """The row in `environments`; equal environments have equal hashes."""
    content = asdict(environment)
    text = json.dumps(content, sort_keys=True)
    return {"hash": hashlib.sha256(text.encode()).hexdigest(), "content": content}


def trial_record(row: Row[Any], environments: Mapping[int | None, Environment | None]) -> TrialRecord:
    """The record of a row with `TRIAL_COLUMNS`. Uses positions for speed, as there may be 10,000 rows."""
    values: list[Any] = list(row)
    values[_ENVIRONMENT] = environments[values[_ENVIRONMENT]]
    if values[_WORKER] is not None:
        values[_WORKER] = WorkerRecord(**values[_WORKER])
    parts = values[_METRICS].get(_PARTS)
    if not isinstance(parts, dict):  # a metric may have that name
        return TrialRecord(*values)
    values[_METRICS] = {name: value for name, value in values[_METRICS].items() if name != _PARTS}
    return replace(TrialRecord(*values), parts={name: tuple(of_parts) for name, of_parts in parts.items()})


def _round(value: Any, digits: int) -> Any:
    """JSON data with rounded numbers; numbers that are not finite become None, as JSON has none."""
    if isinstance(value, Mapping):
        return {name: _round(item, digits) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_round(item, digits) for item in value]
    if isinstance(value, str):
        return value
    return float(f"{value:.{digits}g}") if value is not None and math.isfinite(value) else None


def _number(loss: float | None) -> float | None:
    return None if loss is None or math.isnan(loss) else loss

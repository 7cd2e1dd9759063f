"""Convert records to rows, and rows to records: what a store holds is validated here, and only here."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_type_hints

from sqlalchemy import Row

from ablate.store.records import (
    LARGEST,
    WINDOWS,
    CurvePoint,
    Declaration,
    DesignTraits,
    Environment,
    LeaseRecord,
    Mark,
    PlannedTrial,
    Recording,
    SpeedTiming,
    StudyRecord,
    TrialOutcome,
    TrialRecord,
    TrialState,
    VariantRecord,
)
from ablate.store.tables import TIMED_AT, curves, trials

if TYPE_CHECKING:
    from pydantic import TypeAdapter

# Columns of a curve in the order of the fields of `CurvePoint`.
POINT_COLUMNS = tuple(curves.c[name] for name in CurvePoint._fields)
# Fields of an outcome that are columns of its row; curve and recordings are in other tables.
_OUTCOME = tuple(field.name for field in fields(TrialOutcome) if field.name not in ("curve", "recordings", "parts"))
_REFERENCES = {"environment": "environment_id"}
# Metrics over parts of the validation data are in the column of the metrics, under this key.
_PARTS = "@parts"
# Columns of a trial in the order of the fields of `TrialRecord`; the environment is in another table.
_STORED = tuple(field.name for field in fields(TrialRecord) if field.name not in ("parts", "unreadable"))
TRIAL_COLUMNS = tuple(trials.c[_REFERENCES.get(name, name)] for name in _STORED)

_COST = "=cost"
"""The key, in the settings of a study's variant, of its parameters and activation bytes; no switch has this name."""

JUDGED = "judged"
"""The only key of the space of a study that was judged, not trained here: how its table was read."""

_Record = TypeVar("_Record")


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


@cache
def _curve_validator() -> Callable[[object], object]:
    """Validates the points of a curve, as plain tuples."""
    columns = tuple(get_type_hints(CurvePoint, include_extras=True).values())
    return _adapter(tuple[tuple[columns], ...]).validator.validate_python  # type: ignore[valid-type]


def read(kind: type[_Record], values: Mapping[Any, Any]) -> _Record:
    """The record of a row's values, whose types and bounds are those of the record's fields.

    Raises:
        ValueError: A value cannot be read; the message names the field and says why.
    """
    from pydantic import ValidationError  # a tenth of a second, which `ablate list` does not need

    try:
        record: _Record = _adapter(cast(Any, kind)).validate_python(
            dict(values) if isinstance(values, Mapping) else values
        )
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part)[:40] for part in first["loc"])
        raise ValueError(f"`{place}`: {first['msg'][:200]}") from None
    return record


def readable(kind: type[_Record], values: Mapping[Any, Any]) -> _Record | None:
    """The record of a row's values; None if it cannot be read."""
    try:
        return read(kind, values)
    except ValueError:
        return None


def read_curve(rows: Sequence[Row[Any]]) -> tuple[CurvePoint, ...]:
    """The points of rows with `POINT_COLUMNS`; none if one of them cannot be read: a part is not the curve.

    All points are validated at once, with a validator that is made once: a study may have hundreds of thousands.
    """
    points = tuple(map(CurvePoint._make, rows))
    try:
        _curve_validator()(points)
    except ValueError:
        return ()
    return points


def variant_row(variant: VariantRecord) -> dict[str, Any]:
    """The row in `variants`, which all studies share."""
    return {
        "hash": variant.hash,
        "spec": variant.spec,
        "parameters": variant.parameters or 0,
        "activation_bytes": variant.activation_bytes,
    }


def cost_of(row: Mapping[Any, Any]) -> list[int | None]:
    """The parameters and activation bytes of a row of `variants`."""
    return [row["parameters"], row["activation_bytes"]]


def with_cost(settings: Mapping[str, Any], cost: list[int | None], shared: list[int | None]) -> dict[str, Any]:
    """The settings of a variant of a study, with its cost if it is not that of the row in `variants`, which are shared.

    A hash of a spec holds neither the vocabulary, which the data may determine, nor the code of users' kinds.
    """
    return {**settings} if _COST in settings or cost == shared else {**settings, _COST: cost}


def variant_record(row: Mapping[Any, Any]) -> VariantRecord:
    """The variant of a row of `variants` with `name`, `settings` and `chosen` of a study.

    Raises:
        ValueError: It cannot be read.
    """
    settings = row.get("settings")
    if isinstance(settings, dict) and isinstance(settings.get(_COST), list):  # settings are texts
        cost = read(tuple[int, int | None], settings[_COST])
        own = {name: setting for name, setting in settings.items() if name != _COST}
        row = {**row, "settings": own, "parameters": cost[0], "activation_bytes": cost[1]}
    found = read(VariantRecord, row)
    return found if found.parameters or "model" in found.spec else replace(found, parameters=None)


def study_variant_row(
    study: int, position: int, variant: VariantRecord, shared: Mapping[Any, Any] | None = None
) -> dict[str, Any]:
    """The row in `study_variants`.

    Args:
        shared: The row in `variants`; that of this variant unless given.
    """
    own = [variant.parameters or 0, variant.activation_bytes]
    return {
        "study_id": study,
        "position": position,
        "name": variant.name,
        "variant_hash": variant.hash,
        "settings": with_cost(variant.settings, own, own if shared is None else cost_of(shared)),
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


def outcome_row(outcome: TrialOutcome) -> dict[str, Any]:
    """The row in `trials`, without its environment."""
    row = {name: getattr(outcome, name) for name in _OUTCOME}
    metrics: dict[str, Any] = {name: _clamp(value) for name, value in outcome.metrics.items()}
    parts = {name: [_clamp(value) for value in values] for name, values in outcome.parts.items()}
    return {**row, "metrics": metrics | ({_PARTS: parts} if parts else {})}


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


def trial_record(row: Row[Any], environments: Mapping[int | None, Any]) -> TrialRecord:
    """The record of a row with `TRIAL_COLUMNS`; if it cannot be read, a failed trial that says so.

    Args:
        row: The row.
        environments: Id to environment, or to what its row holds where that is none.
    """
    values = dict(zip(_STORED, row, strict=True))
    values["environment"] = environments.get(values["environment"], "")
    metrics = values["metrics"]
    if isinstance(metrics, dict) and isinstance(metrics.get(_PARTS), dict):  # a metric may have that name
        values["parts"] = metrics[_PARTS]
        values["metrics"] = {name: value for name, value in metrics.items() if name != _PARTS}
    try:
        return read(TrialRecord, values)
    except ValueError as error:
        return unreadable_trial(str(values["key"]), str(error))


def unreadable_trial(key: str, problem: str) -> TrialRecord:
    """A trial whose row cannot be read: a failed one, whose reason says what is wrong with the row."""
    reason = f"its row in the store cannot be read: {problem}"
    return TrialRecord(
        key, "", 0, TrialState.FAILED, {}, 0, 0.0, 0, 0.0, None, reason, "", None, None, None, unreadable=problem
    )


def timings_of(content: Any) -> tuple[SpeedTiming, ...]:
    """The timings of a row of `recordings` at the step `TIMED_AT`.

    Raises:
        ValueError: One of them cannot be read.
    """
    if not isinstance(content, dict):
        raise ValueError("`content`: not a mapping of baselines to timings")
    measured = ((baseline, timing if isinstance(timing, dict) else {}) for baseline, timing in content.items())
    return tuple(read(SpeedTiming, {**timing, "baseline": baseline}) for baseline, timing in measured)


def problem_of(table: str, row: Mapping[str, Any]) -> str | None:
    """Why a row of a table, with converted values, cannot be read; None if it can.

    References to other rows are left to the database.
    """
    try:
        _READERS[table](row)
    except ValueError as error:
        return str(error)
    return None


def study_values(row: Mapping[Any, Any]) -> dict[str, Any]:
    """The values of a row of `studies` as fields of a `StudyRecord`; older versions stored no traits, for instance."""
    declared = row["declared_before"]
    return {
        **row,
        "trivial": {} if row["trivial"] is None else row["trivial"],
        "traits": DesignTraits() if row["traits"] is None else row["traits"],
        "declared_before": () if declared is None else declared,
        "judged": row["space"].get(JUDGED) if isinstance(row["space"], dict) else None,
    }


def _read_trial(row: Mapping[str, Any]) -> None:
    values = [row[column.name] for column in TRIAL_COLUMNS]
    record = trial_record(values, dict(zip([row["environment_id"]], repeat(None))))  # type: ignore[arg-type]
    if record.unreadable:
        raise ValueError(record.unreadable)


def _read_recording(row: Mapping[str, Any]) -> None:
    if row["step"] == TIMED_AT:
        timings_of(row["content"])
    else:
        read(Recording, {"step": row["step"], "values": row["content"]})


_READERS: dict[str, Callable[[Mapping[str, Any]], object]] = {
    "studies": lambda row: read(StudyRecord, study_values(row) | {"variants": (), "planned": ()}),
    "variants": lambda row: read(VariantRecord, {**row, "name": "", "settings": {}}),
    "study_variants": lambda row: variant_record({**row, "hash": row["variant_hash"], "spec": {}, "parameters": None}),
    "environments": lambda row: read(Environment, row["content"]),
    "trials": _read_trial,
    "codes": lambda row: read(dict[str, Any], row["content"]),
    "study_trials": lambda row: read(PlannedTrial, {**row, "key": row["trial_key"]}),
    "curves": lambda row: read(CurvePoint, {name: row[name] for name in CurvePoint._fields}),
    "recordings": _read_recording,
    "leases": lambda row: read(LeaseRecord, row),
    "marks": lambda row: read(Mark, row),
}
"""For each table the function that reads a row as the reader of the store does."""


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
    return None if loss is None or math.isnan(loss) else _clamp(loss)


def _clamp(value: float) -> float:
    return math.copysign(LARGEST, value) if math.isfinite(value) and abs(value) > LARGEST else value

"""A report as strict JSON with stable keys (no NaN, no Infinity), for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ablate.report.study import StudyReport, VariantRow
from ablate.stats import Interval
from ablate.store.records import StudySummary


def study_json(report: StudyReport) -> dict[str, Any]:
    """The report of a study as plain JSON data; what `ablate show STUDY --json` prints."""
    return {
        "study": report.record.name,
        "question": report.record.question,
        "objective": {"metric": report.metric, "direction": report.direction, "margin": report.margin},
        "baseline": report.record.baseline,
        "progress": {"planned": report.planned} | {state.value: count for state, count in report.progress.items()},
        "variants": [_variant(row) for row in report.variants],
        "claims": [],
        "answer": list(report.answer),
    }


def studies_json(summaries: Iterable[StudySummary]) -> list[dict[str, Any]]:
    """The studies of a store as plain JSON data; what `ablate list --json` prints."""
    return [
        {
            "study": summary.name,
            "question": summary.question,
            "variants": summary.variants,
            "planned": summary.planned,
            "finished": summary.finished,
            "diverged": summary.diverged,
            "failed": summary.failed,
            "running": summary.running,
            "updated_at": summary.updated_at.isoformat(),
        }
        for summary in summaries
    ]


def to_text(plain: Any) -> str:
    """Plain data as indented JSON text."""
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)


def _variant(row: VariantRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "hash": row.hash,
        "settings": row.settings,
        "parameters": row.parameters,
        "parameter_change": row.parameter_change,
        "seeds": list(row.finished),
        "states": {str(seed): state.value for seed, state in row.states.items()},
        "diverged": [{"seed": trial.seed, "step": trial.step, "reason": trial.reason} for trial in row.diverged],
        "metrics": {name: _interval(interval) for name, interval in row.metrics.items()},
        "versus_baseline": _versus_baseline(row),
        "steps_to_baseline": {
            "mean": row.steps_to_baseline.mean,
            "reached": row.steps_to_baseline.reached,
            "of": row.steps_to_baseline.of,
        },
        "relative_speed": row.relative_speed,
    }


def _interval(interval: Interval) -> dict[str, Any]:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high, "n": interval.n}


def _versus_baseline(row: VariantRow) -> dict[str, Any] | None:
    if row.difference is None or row.verdict is None:
        return None
    return {
        "difference": row.difference.difference,
        "low": row.difference.low,
        "high": row.difference.high,
        "n": row.difference.n,
        "verdict": row.verdict.word,
        "sentence": row.verdict.sentence,
        "further_seeds": row.verdict.further_seeds,
    }

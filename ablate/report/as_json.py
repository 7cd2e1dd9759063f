"""A report as strict JSON with stable keys (no NaN, no Infinity), for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ablate.report.study import StudyReport, VariantRow
from ablate.stats import Interval, PairedDifference, sign_flip
from ablate.stats.bounds import LEAST_PAIRS
from ablate.store.records import StudySummary

if TYPE_CHECKING:
    from ablate.report.claims import ClaimVerdict


def study_json(report: StudyReport) -> dict[str, Any]:
    """The report of a study as plain JSON data; what `ablate show STUDY --json` prints."""
    return {
        "study": report.record.name,
        "question": report.record.question,
        "objective": {"metric": report.metric, "direction": report.direction, "margin": report.margin},
        "baseline": report.record.baseline,
        "trivial_baselines": {
            "best": report.trivial.name if report.trivial else None,
            "metrics": report.record.trivial,
        },
        "progress": {"planned": report.planned} | {state.value: count for state, count in report.progress.items()},
        "variants": [_variant(row, report) for row in report.variants],
        "claims": claims_json(report.claims),
        "answer": list(report.answer),
    }


def claims_json(claims: Iterable[ClaimVerdict]) -> list[dict[str, Any]]:
    """What became of claims as plain JSON data; what `ablate claims STUDY --json` prints."""
    return [
        {
            "id": claim.id,
            "says": claim.says,
            "source": claim.source,
            "verdict": claim.verdict,
            "sentence": claim.sentence,
            "evidence": claim.evidence,
        }
        for claim in claims
    ]


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


def _variant(row: VariantRow, report: StudyReport) -> dict[str, Any]:
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
        "versus_baseline": _versus_baseline(row, report),
        "steps_to_baseline": {
            "mean": row.steps_to_baseline.mean,
            "reached": row.steps_to_baseline.reached,
            "of": row.steps_to_baseline.of,
        },
        "relative_speed": row.relative_speed,
    }


def _interval(interval: Interval) -> dict[str, Any]:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high, "n": interval.n}


def _versus_baseline(row: VariantRow, report: StudyReport) -> dict[str, Any] | None:
    if row.difference is None or row.verdict is None:
        return None
    return {
        "difference": row.difference.difference,
        "low": row.difference.low,
        "high": row.difference.high,
        "n": row.difference.n,
        "effect_size": row.difference.effect_size,
        "verdict": row.verdict.word,
        "sentence": row.verdict.sentence,
        "further_seeds": row.verdict.further_seeds,
        "holds_together": row.name in report.together,
        "sign_flip": _sign_flip(row.difference, report),
    }


def _sign_flip(difference: PairedDifference, report: StudyReport) -> dict[str, float] | None:
    """The exact check on a verdict: the differences against the margin."""
    if difference.n < LEAST_PAIRS:
        return None
    flipped = sign_flip(difference.values, report.margin if report.direction == "minimize" else -report.margin)
    return {"p": flipped.p, "floor": flipped.floor}

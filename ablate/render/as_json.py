"""A report as strict JSON with stable keys (no NaN, no Infinity), for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ablate.analysis.answer import Answer, answer_of
from ablate.analysis.columns import columns, flip_at_margin, machine_row
from ablate.analysis.report import OtherLength, StudyReport
from ablate.analysis.rows import VariantRow
from ablate.analysis.slices import varied_values
from ablate.analysis.why import Why
from ablate.render import outputs
from ablate.render.outputs import as_data, extended
from ablate.roles import TrialRole
from ablate.stats import PairedDifference
from ablate.store.records import JudgedRuns, VariantRecord

if TYPE_CHECKING:
    from ablate.analysis.claims import ClaimVerdict
    from ablate.analysis.findings import Findings


def study_json(report: StudyReport) -> outputs.StudyOutput:
    """The report of a study as plain JSON data; what `ablate show STUDY --json` prints."""
    variants = {variant.name: variant for variant in report.record.variants}
    return {
        "study": report.record.name,
        "question": report.record.question,
        "objective": {"metric": report.metric, "direction": report.direction, "margin": report.margin},
        "baseline": report.record.baseline,
        "trivial_baselines": {
            "best": report.evidence.trivial.name if report.evidence.trivial else None,
            "metrics": report.record.trivial,
        },
        "progress": {"planned": report.progress.planned}
        | {state.value: count for state, count in report.progress.states.items()},
        "variants": [_variant(row, variants[row.name], report) for row in report.variants],
        "other_budgets": [_other_length(length, report) for length in report.other_lengths],
        "failures": [as_data(failure) for failure in report.progress.failures],
        "claims": claims_json(report.answer.claims),
        "scaling": _scaling_json(report),
        "ladder": None if report.climbs is None else as_data(report.climbs),
        "redeclared": [
            {
                "until": one.until.isoformat(),
                "finished": one.finished,
                "changes": [
                    {"path": change.path, "before": change.before, "after": change.after} for change in one.changes
                ],
                "dropped": one.dropped,
            }
            for one in report.evidence.redeclared
        ],
        "validation_draw": report.evidence.draw_sd,
        "judged": None if report.record.judged is None else _judged_json(report.record.judged),
        "answer": as_data(extended(outputs.LongAnswer, answer_of(report), sentences=report.answer.sentences)),
        "assumption": report.assumption,
        "caveats": list(report.answer.warning_sentences),
        "match": {
            "equal": report.evidence.matching.equal,
            "path": report.evidence.matching.path,
            "axis": report.evidence.matching.axis,
        },
        "tune": None
        if report.evidence.tuning is None
        else {
            "grid": report.evidence.tuning.grid,
            "seeds": list(report.evidence.tuning.seeds),
            "before": list(report.evidence.tuning.before),
        },
    }


def _judged_json(judged: JudgedRuns) -> outputs.JudgedOutput:
    return {
        "unit": judged.unit,
        "paired": sorted(judged.paired),
        "evidence": judged.evidence,
        "limits": [{"level": level, "text": text} for level, text in judged.limits],
        "notes": list(judged.notes),
        "censored": dict(judged.censored),
    }


def judged_json(reports: Mapping[str, StudyReport], answer: Answer) -> outputs.JudgedTableOutput:
    """The questions on a table with their one answer; what `ablate judge TABLE --json` prints."""
    return {
        "questions": {name: study_json(report) for name, report in reports.items()},
        "answer": as_data(answer),
    }


def claims_json(claims: Iterable[ClaimVerdict]) -> list[ClaimVerdict]:
    """The verdicts on claims as plain JSON data; what `ablate claims STUDY --json` prints."""
    return [as_data(claim) for claim in claims]


def to_text(plain: Any) -> str:
    """Plain data as indented JSON text."""
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)


def why_json(why: Why) -> Why:
    """Why one variant has its verdict, as plain JSON data."""
    return as_data(why)


def _variant(row: VariantRow, variant: VariantRecord, report: StudyReport) -> outputs.VariantOutput:
    return {
        "name": row.name,
        "hash": row.hash,
        "settings": row.settings,
        "varied": varied_values(report.record, variant),
        "role": (TrialRole.CONFIRMATION if row.confirmed else TrialRole.COMPARISON).value,
        "change": {"removed": list(row.change.removed), "otherwise": list(row.change.otherwise)},
        "parameters": row.parameters,
        "parameter_change": row.parameter_change,
        "seeds": list(row.finished),
        "states": {str(seed): state.value for seed, state in row.states.items()},
        "failed": [{"seed": trial.seed, "reason": trial.reason} for trial in row.failed],
        "diverged": [{"seed": trial.seed, "step": trial.step, "reason": trial.reason} for trial in row.diverged],
        "metrics": {name: as_data(interval) for name, interval in row.metrics.items()},
        "versus_baseline": _versus_baseline(row, report),
        "steps_to_baseline": {
            "median": row.steps_to_baseline.median,
            "reached": row.steps_to_baseline.reached,
            "of": row.steps_to_baseline.of,
        },
        "relative_speed": as_data(row.relative_speed) if row.relative_speed is not None else None,
        "course": _course(row, report),
        "chosen": row.chosen,
        "confirmed": list(row.confirmed),
        "spent_to_baseline": as_data(row.spent_to_baseline),
        "budget": as_data(report.evidence.matching.of[row.name]) if row.name in report.evidence.matching.of else None,
        "tuned": as_data(report.evidence.tuning.of[row.name]) if report.evidence.tuning is not None else None,
        "table": machine_row(row, columns(report)),
    }


def _other_length(one: OtherLength, report: StudyReport) -> outputs.OtherBudgetOutput:
    return {
        "name": one.record.name,
        "hash": one.record.hash,
        "settings": one.record.settings,
        "varied": varied_values(report.record, one.record),
        "role": TrialRole.COMPARISON.value,
        "states": {str(seed): state.value for seed, state in one.states.items()},
        "metrics": {name: as_data(interval) for name, interval in one.metrics.items()},
    }


def _versus_baseline(row: VariantRow, report: StudyReport) -> outputs.VersusBaselineOutput | None:
    if row.difference is None or row.verdict is None:
        return None
    return {
        "difference": row.difference.difference,
        "low": row.difference.low,
        "high": row.difference.high,
        "n": row.difference.n,
        "effect_size": row.difference.effect_size,
        "verdict": row.verdict.word,
        "sentence": row.verdict_sentence,
        "further_seeds": row.verdict.further_seeds,
        "chance_of_decision": row.verdict.chance,
        "holds_together": row.name in report.answer.together,
        "sign_flip_at_margin": flip_at_margin(row.difference, report),
    }


def _scaling_json(report: StudyReport) -> outputs.ScaleOutput | None:
    scalings = report.scaling
    if scalings is None:
        return None
    return {
        "axis": scalings.axis,
        "places": list(scalings.places),
        "variants": [
            {
                "name": scaling.variant,
                "outcome": scaling.outcome,
                "for_each_doubling": None if scaling.slope is None else _paired_json(scaling.slope),
                "no_slope": scaling.no_slope,
                "steps": [_paired_json(step) for step in scaling.steps],
                "points": [
                    {"at": point.at, "verdict": point.verdict.word, **_paired_json(point.difference)}
                    for point in scaling.points
                ],
            }
            for scaling in scalings.of
        ],
    }


def _paired_json(difference: PairedDifference) -> outputs.PairedOutput:
    return {"difference": difference.difference, "low": difference.low, "high": difference.high, "n": difference.n}


def _course(row: VariantRow, report: StudyReport) -> outputs.CourseOutput | None:
    course = row.course
    if course is None:
        return None
    return {
        "word": course.word,
        "movement": course.movement.difference,
        "movement_low": course.movement.low,
        "movement_high": course.movement.high,
        "provisional": row.provisional(report.margin),
        "comparable": course.comparable,
        "own_schedule": course.own_schedule,
        "points": [as_data(point) for point in course.points],
    }


def report_json(findings: Findings) -> outputs.ReportOutput:
    """The report of a study as plain JSON data: with what only some designs give, null where a study has none of it."""
    record, effects = findings.report.record, findings.report.effects
    return {
        **study_json(findings.report),
        "effects": None if effects is None else as_data(effects),
        "importances": None if findings.importances is None else as_data(findings.importances),
        "path": None if findings.path is None else as_data(findings.path),
        "front": None if findings.front is None else as_data(findings.front),
        "slices": [as_data(found) for found in findings.slices],
        "cost": {
            "trials": findings.cost.trials,
            "seconds": findings.cost.seconds,
            "tokens": findings.cost.tokens,
            "flops": findings.cost.flops,
            "variants": {name: as_data(of) for name, of in findings.cost_of.items()},
            "scouting": as_data(findings.scouting),
            "full_grid": None if findings.full_grid is None else as_data(findings.full_grid),
        },
        "environments": [as_data(environment) for environment in findings.environments],
        "data": list(findings.data),
        "space": record.space,
        "text": record.text,
    }

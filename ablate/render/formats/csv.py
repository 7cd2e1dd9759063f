"""The ablation table as CSV: a line for each variant at each budget, every number with full precision."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from ablate.analysis.findings import Findings
from ablate.render.as_json import study_json
from ablate.render.formats import Format, Place
from ablate.spec.budgets import at_budget
from ablate.store.records import TrialState

Cell = str | int | float | None


def harmless(cell: object) -> object:
    """A cell that no spreadsheet takes for a formula: text that begins like one gets an apostrophe before it."""
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    return cell if re.fullmatch(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?", cell) else f"'{cell}"


def table_rows(findings: Findings) -> Iterator[dict[str, Cell]]:
    """A line of the table for each variant, then for each at another budget: title of the column to value."""
    plain, trivial = study_json(findings.report), findings.report.trivial
    for row, variant in zip(findings.report.variants, plain["variants"], strict=True):
        versus = variant["versus_baseline"] or {}
        flip = versus.get("sign_flip_at_margin") or {}
        interval = variant["metrics"].get(findings.report.metric, {})
        tested = variant["metrics"].get(findings.report.test_metric, {})
        cost, speed = findings.cost_of[row.name], variant["relative_speed"] or {}
        yield {
            "study": plain["study"],
            "variant": row.name,
            "hash": row.hash,
            **_parameters(findings, variant),
            "parameters": row.parameters,
            "parameter_change": row.parameter_change,
            "planned": len(row.planned),
            "finished": len(row.finished),
            "diverged": len(row.diverged),
            "pruned": list(row.states.values()).count(TrialState.PRUNED),
            "metric": findings.report.metric,
            "margin": findings.report.margin,
            **{key: interval.get(key) for key in ("mean", "low", "high")},
            **{f"test_{key}": tested.get(key) for key in ("mean", "low", "high")},
            "difference": versus.get("difference"),
            "difference_low": versus.get("low"),
            "difference_high": versus.get("high"),
            "pairs": versus.get("n"),
            "standard_error": row.difference.standard_error if row.difference else None,
            "effect_size": versus.get("effect_size"),
            "verdict": versus.get("verdict"),
            "reason": versus.get("sentence"),
            "further_seeds": versus.get("further_seeds"),
            "holds_together": versus.get("holds_together"),
            "sign_flip_at_margin_p": flip.get("p"),
            "sign_flip_at_margin_floor": flip.get("floor"),
            "trivial_baseline": trivial.name if trivial else None,
            "trivial_value": trivial.value if trivial else None,
            "steps_to_baseline": row.steps_to_baseline.median,
            "reached_baseline": row.steps_to_baseline.reached,
            "course": row.course.word if row.course else None,
            "movement": row.course.movement.difference if row.course else None,
            "movement_low": row.course.movement.low if row.course else None,
            "movement_high": row.course.movement.high if row.course else None,
            "provisional": row.provisional(findings.report.margin),
            "relative_speed": speed.get("mean"),
            "relative_speed_low": speed.get("low"),
            "relative_speed_high": speed.get("high"),
            "seconds": cost.seconds,
            "tokens": cost.tokens,
            "flops": cost.flops,
            "relative_budget": (variant["budget"] or {}).get("relative"),
        }
    yield from _other_budgets(findings, plain["other_budgets"])


def _other_budgets(findings: Findings, others: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Cell]]:
    """The lines of variants at other budgets, with their differences from the baseline at the same budget."""
    report, scaling = findings.report, findings.report.scaling
    points = {
        at_budget(one.variant, point.at): point for one in (scaling.of if scaling else ()) for point in one.points
    }
    for one, variant in zip(report.other_lengths, others, strict=True):
        states, interval = list(one.states.values()), variant["metrics"].get(report.metric, {})
        point = points.get(variant["name"])
        yield {
            "study": report.record.name,
            "variant": variant["name"],
            "hash": variant["hash"],
            **_parameters(findings, variant),
            "parameters": one.record.parameters,
            "planned": len(states),
            **{
                state.value: states.count(state)
                for state in (TrialState.FINISHED, TrialState.DIVERGED, TrialState.PRUNED)
            },
            "metric": report.metric,
            "margin": report.margin,
            **{key: interval.get(key) for key in ("mean", "low", "high")},
            "difference": point.difference.difference if point else None,
            "difference_low": point.difference.low if point else None,
            "difference_high": point.difference.high if point else None,
            "pairs": point.difference.n if point else None,
            "verdict": point.verdict.word if point else None,
        }


def _parameters(findings: Findings, variant: Mapping[str, Any]) -> dict[str, Cell]:
    """Whatever the study varied: settings of switches, values of paths, and the role of the compared trials."""
    known = findings.report.record.space.get("switches", variant["settings"])
    tuned = findings.report.tuning.grid if findings.report.tuning else {}
    return {
        **{f"switch.{switch}": setting for switch, setting in variant["settings"].items() if switch in known},
        **{
            f"{'tuned' if path in tuned else 'value'}.{path}": _cell(value) for path, value in variant["varied"].items()
        },
        "role": variant["role"],
    }


def _cell(value: Any) -> Cell:
    """A value of a spec path; a part of a spec as its JSON."""
    return value if value is None or isinstance(value, (str, int, float)) else json.dumps(value, sort_keys=True)


class CsvFormat(Format):
    """The ablation table as CSV: a line for each variant, every number with full precision."""

    kind: Literal["csv"] = "csv"
    suffix = "csv"

    def render(self, findings: Findings, place: Place) -> str:
        """The table; an empty cell where there is no number."""
        text = io.StringIO()
        rows = list(table_rows(findings))
        titles = list(dict.fromkeys(title for row in rows for title in row))
        writer = csv.DictWriter(text, titles, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows({title: harmless(cell) for title, cell in row.items()} for row in rows)
        return text.getvalue()

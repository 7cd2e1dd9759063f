"""Reports as data: JSON with everything, and the ablation table as CSV and as Parquet."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from ablate.analysis.answer import Answer
from ablate.analysis.columns import Value, columns, machine_row, varied_cells
from ablate.analysis.findings import Findings, TrainingCost
from ablate.analysis.report import StudyReport
from ablate.extras import require
from ablate.render.as_json import report_json, to_text
from ablate.render.formats import Format, Place
from ablate.render.outputs import as_data
from ablate.roles import TrialRole
from ablate.spec.fairness import at_budget
from ablate.store.records import ENDED


class JsonFormat(Format):
    """The report as JSON: what `ablate show --json` prints, effects, path, front, environment, cost and the space."""

    kind: Literal["json"] = "json"
    suffix = "json"

    def render(self, findings: Findings, place: Place) -> str:
        """Strict JSON with stable keys."""
        return to_text(report_json(findings)) + "\n"

    def render_questions(self, answer: Answer, findings: Sequence[Findings], places: Sequence[Place]) -> str:
        """Question to its report, and their one answer."""
        reports = {found.report.record.name: report_json(found) for found in findings}
        return to_text({"questions": reports, "answer": as_data(answer)}) + "\n"


def harmless(cell: object) -> object:
    """A cell that no spreadsheet takes for a formula: text that begins like one gets an apostrophe before it."""
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    return cell if re.fullmatch(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?", cell) else f"'{cell}"


def table_rows(findings: Findings) -> Iterator[dict[str, Value]]:
    """A line of the table for each variant, then for each at another budget: title of the column to value."""
    report, trivial, cost_of = findings.report, findings.report.evidence.trivial, findings.cost_of
    name, *others = columns(report)
    variants = {variant.name: variant for variant in report.record.variants}
    for row in report.variants:
        budget = report.evidence.matching.of.get(row.name)
        yield {
            "study": report.record.name,
            **name.values(row),
            **varied_cells(variants[row.name], report),
            "role": (TrialRole.CONFIRMATION if row.confirmed else TrialRole.COMPARISON).value,
            "metric": report.metric,
            "margin": report.margin,
            **machine_row(row, others),
            "trivial_baseline": trivial.name if trivial else None,
            "trivial_value": trivial.value if trivial else None,
            **_cost(cost_of[row.name], report),
            "relative_budget": budget.relative if budget else None,
        }
    yield from _other_budgets(report)


def _cost(cost: TrainingCost, report: StudyReport) -> dict[str, Value]:
    """What the trials of a variant needed; nothing where they were trained elsewhere.

    No seconds: each trial shared its machine with others, so they compare no variants.
    """
    return {} if report.record.judged is not None else {"tokens": cost.tokens, "flops": cost.flops}


def _other_budgets(report: StudyReport) -> Iterator[dict[str, Value]]:
    """The lines of variants at other budgets, with their differences from the baseline at the same budget."""
    scaling = report.scaling
    points = {
        at_budget(one.variant, point.at): point for one in (scaling.of if scaling else ()) for point in one.points
    }
    for length in report.other_lengths:
        states, mean, point = (
            list(length.states.values()),
            length.metrics.get(report.metric),
            points.get(length.record.name),
        )
        yield {
            "study": report.record.name,
            "variant": length.record.name,
            "hash": length.record.hash,
            **varied_cells(length.record, report),
            "role": TrialRole.COMPARISON.value,
            "metric": report.metric,
            "margin": report.margin,
            "parameters": length.record.parameters,
            "planned": len(states),
            **{state.value: states.count(state) for state in ENDED},
            **{name: getattr(mean, name, None) for name in ("mean", "low", "high")},
            "difference": point.difference.difference if point else None,
            "difference_low": point.difference.low if point else None,
            "difference_high": point.difference.high if point else None,
            "pairs": point.difference.n if point else None,
            "verdict": point.verdict.word if point else None,
        }


def _csv(findings: Iterable[Findings]) -> str:
    text = io.StringIO()
    rows = [row for found in findings for row in table_rows(found)]
    titles = list(dict.fromkeys(title for row in rows for title in row))
    writer = csv.DictWriter(text, titles, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({title: harmless(cell) for title, cell in row.items()} for row in rows)
    return text.getvalue()


class CsvFormat(Format):
    """The ablation table as CSV: a line for each variant, every number with full precision."""

    kind: Literal["csv"] = "csv"
    suffix = "csv"

    def render(self, findings: Findings, place: Place) -> str:
        """The table; an empty cell where there is no number."""
        return _csv([findings])

    def render_questions(self, answer: Answer, findings: Sequence[Findings], places: Sequence[Place]) -> str:
        """The lines of all; the column `study` names the question."""
        return _csv(findings)


def _parquet(findings: Iterable[Findings]) -> bytes:
    require("data", "the format parquet", where="--format", packages=("pyarrow",))
    import pyarrow as pa
    import pyarrow.parquet

    def column(values: list[Value]) -> Any:
        try:
            return pa.array(values)
        except (pa.ArrowInvalid, OverflowError):  # a path may be a number in one variant and a word in another
            return pa.array([None if value is None else str(value) for value in values])

    rows = [row for found in findings for row in table_rows(found)]
    titles = dict.fromkeys(title for row in rows for title in row)
    table = pa.table({title: column([row.get(title) for row in rows]) for title in titles})
    written = io.BytesIO()
    pyarrow.parquet.write_table(table, written)
    return written.getvalue()


class ParquetFormat(Format):
    """The ablation table as Parquet: the columns of the CSV, with their types."""

    kind: Literal["parquet"] = "parquet"
    suffix = "parquet"

    def render(self, findings: Findings, place: Place) -> bytes:
        """The table; null where there is no number.

        Raises:
            MissingPackageError: pyarrow is not installed.
        """
        return _parquet([findings])

    def render_questions(self, answer: Answer, findings: Sequence[Findings], places: Sequence[Place]) -> bytes:
        """The lines of all; the column `study` names the question."""
        return _parquet(findings)

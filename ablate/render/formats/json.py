"""The report as JSON: what `ablate show --json` prints, effects, path, front, environment, cost and the space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ablate.analysis.answer import Answer
from ablate.analysis.findings import Findings
from ablate.render.as_json import report_json, to_text
from ablate.render.formats import Format, Place
from ablate.render.outputs import as_data


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

"""The report as JSON: what `ablate show --json` prints, effects, path, front, environment, cost and the space."""

from __future__ import annotations

from typing import Literal

from ablate.analysis.findings import Findings
from ablate.render.as_json import report_json, to_text
from ablate.render.formats import Format, Place


class JsonFormat(Format):
    """The report as JSON: what `ablate show --json` prints, effects, path, front, environment, cost and the space."""

    kind: Literal["json"] = "json"
    suffix = "json"

    def render(self, findings: Findings, place: Place) -> str:
        """Strict JSON with stable keys."""
        return to_text(report_json(findings)) + "\n"

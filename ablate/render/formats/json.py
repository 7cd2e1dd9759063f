"""The report as JSON: what `ablate show --json` prints, effects, path, front, environment, cost and the space."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from ablate.analysis.findings import Findings
from ablate.render.as_json import designed_json, study_json, to_text
from ablate.render.formats import Format, Place


class JsonFormat(Format):
    """The report as JSON: what `ablate show --json` prints, effects, path, front, environment, cost and the space."""

    kind: Literal["json"] = "json"
    suffix = "json"

    def render(self, findings: Findings, place: Place) -> str:
        """Strict JSON with stable keys."""
        record = findings.report.record
        plain = study_json(findings.report) | {
            **designed_json(findings),
            "cost": asdict(findings.cost)
            | {"variants": {name: asdict(of) for name, of in findings.cost_of.items()}}
            | {"scouting": asdict(findings.scouting)}
            | {"full_grid": asdict(findings.full_grid) if findings.full_grid else None},
            "environments": [asdict(environment) for environment in findings.environments],
            "data": list(findings.data),
            "space": record.space,
            "text": record.text,
        }
        return to_text(plain) + "\n"

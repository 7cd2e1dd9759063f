"""The report as JSON: what `ablate show --json` prints, with environment, cost and the space to run it again."""

from __future__ import annotations

from dataclasses import asdict

from ablate.report.as_json import study_json, to_text
from ablate.report.findings import Findings
from ablate.report.formats import Format, Place


def render(findings: Findings, place: Place) -> str:
    """Strict JSON with stable keys."""
    record = findings.report.record
    plain = study_json(findings.report) | {
        "cost": asdict(findings.cost)
        | {"variants": {name: asdict(of) for name, of in findings.cost_of.items()}}
        | {"scouting": asdict(findings.scouting)},
        "environments": [asdict(environment) for environment in findings.environments],
        "data": list(findings.data),
        "space": record.space,
        "text": record.text,
    }
    return to_text(plain) + "\n"


FORMAT = Format("json", render)

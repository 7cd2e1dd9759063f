"""Prints what `ablate check-kind` found."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from ablate.analysis.text import plural
from ablate.contracts.checking import CheckedKind, CheckedSpec, UntriedKind
from ablate.contracts.contract import Finding
from ablate.spec.base import Spec

if TYPE_CHECKING:
    from ablate.render.terminal import outputs


def check_json(checked: CheckedKind | UntriedKind) -> outputs.CheckedKindOutput:
    """What was found as plain data."""
    if isinstance(checked, UntriedKind):
        return {"kind": checked.kind, "family": checked.family, "settings": 0, "missing": list(checked.missing)}
    return {
        "kind": checked.kind,
        "family": checked.family,
        "settings": len(checked.specs),
        "rules": list(checked.contract.rules),
        "warnings": _warnings(checked),
        "findings": [
            {
                "rule": finding.rule,
                "spec": spec.spec.canonical(),
                "context": _plain(finding.context),
                "detail": finding.detail,
            }
            for spec in checked.specs
            for finding in spec.findings
        ],
    }


def _plain(context: Any) -> dict[str, Any]:
    values = {field.name: getattr(context, field.name) for field in fields(context)}
    return {name: value.canonical() if isinstance(value, Spec) else value for name, value in values.items()}


def print_check(checked: CheckedKind | UntriedKind, console: Console) -> None:
    """Print each broken rule with where it was broken first, and a last line that sums up."""
    if isinstance(checked, UntriedKind):
        needed = " ".join(f"--set {name}=VALUE" for name in checked.missing)
        console.print(Text(f"{checked.kind} was not tried: `ablate check-kind {checked.kind} {needed}` tries it."))
        return
    rules = checked.contract.rules
    broken: dict[str, list[tuple[CheckedSpec, Finding[Any]]]] = {}
    for spec in checked.specs:
        for finding in spec.findings:
            broken.setdefault(finding.rule, []).append((spec, finding))
    for rule, reasons in broken.items():
        one, finding = reasons[0]
        console.print(Text.assemble((rule, "bold red"), f"  {(rules[rule].__doc__ or '').strip()}"), soft_wrap=True)
        console.print(Text(f"  {finding.detail}"), soft_wrap=True)
        where = checked.contract.describe(finding.context)
        console.print(Text(f"  {one.spec.canonical_json()} at {where}", style="dim"), soft_wrap=True)
        if len(reasons) > 1:
            console.print(
                Text(f"  and {len(reasons) - 1} more {'time' if len(reasons) == 2 else 'times'}", style="dim")
            )
    for warning in _warnings(checked):
        console.print(Text.assemble(("Warning: ", "bold yellow"), warning), soft_wrap=True)
    verdict = f"breaks {len(broken)} of {len(rules)} rules" if broken else f"keeps all {len(rules)} rules"
    console.print(Text(f"{checked.kind} {verdict}, in {plural(len(checked.specs), 'setting')}."))


def _warnings(checked: CheckedKind) -> list[str]:
    """Each warning once."""
    return list(dict.fromkeys(warning for spec in checked.specs for warning in spec.warnings))

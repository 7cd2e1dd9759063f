"""`ablate check`: the contract of a mixer, run for the person who wrote one."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from ablate.contracts.mixer import RULES, Finding, check_mixer, contexts
from ablate.contracts.settings import settings
from ablate.errors import PluginError
from ablate.report.text import plural
from ablate.spec.mixer import MIXERS, MixerSpec


@dataclass(frozen=True, slots=True)
class Checked:
    """One setting of a kind and what was found wrong with it."""

    spec: MixerSpec
    findings: list[Finding]


def check_kind(kind: str) -> list[Checked]:
    """Try a kind by every rule of the contract, at its defaults and at pairs of its named choices.

    Raises:
        PluginError: There is no such kind, it has no defaults, or it refuses every size that is tried.
    """
    member = MIXERS.members().get(kind)
    if member is None or not issubclass(member, MixerSpec):
        near = difflib.get_close_matches(kind, MIXERS.members(), n=1)
        hint = f"Did you mean `{near[0]}`?" if near else "`--plugin FILE` names the file that defines it."
        raise PluginError("there is no kind of mixer of this name", where=kind, remedy=hint)
    try:
        specs = list(settings(member))
    except ValidationError as error:
        raise PluginError(
            f"the contract starts from the defaults of a kind, and `{error.errors()[0]['loc'][0]}` has none",
            where=kind,
            remedy="Give every field a default.",
        ) from None
    if not any(contexts(spec) for spec in specs):
        raise PluginError(
            "this kind refuses every size that the contract tries", where=kind, remedy="Refuse less in `check`."
        )
    return [Checked(spec, check_mixer(spec)) for spec in specs]


def check_json(kind: str, checked: list[Checked]) -> dict[str, Any]:
    """What was found as plain data."""
    return {
        "kind": kind,
        "settings": len(checked),
        "rules": list(RULES),
        "findings": [
            {
                "rule": finding.rule,
                "spec": one.spec.canonical(),
                "width": finding.context.width,
                "heads": finding.context.heads,
                "tokens": finding.context.context,
                "causal": finding.context.causal,
                "detail": finding.detail,
            }
            for one in checked
            for finding in one.findings
        ],
    }


def print_check(kind: str, checked: list[Checked], console: Console) -> None:
    """Print each broken rule with where it was broken first, and a last line that sums up."""
    broken: dict[str, list[tuple[Checked, Finding]]] = {}
    for one in checked:
        for finding in one.findings:
            broken.setdefault(finding.rule, []).append((one, finding))
    for rule, found in broken.items():
        one, finding = found[0]
        context = finding.context
        form = "causal" if context.causal else "bidirectional"
        console.print(Text.assemble((rule, "bold red"), f"  {(RULES[rule].__doc__ or '').strip()}"), soft_wrap=True)
        console.print(Text(f"  {finding.detail}"), soft_wrap=True)
        where = f"width {context.width}, {plural(context.heads, 'head')}, {plural(context.context, 'token')}, {form}"
        console.print(Text(f"  {one.spec.canonical_json()} at {where}", style="dim"), soft_wrap=True)
        if len(found) > 1:
            console.print(Text(f"  and {len(found) - 1} more {'time' if len(found) == 2 else 'times'}", style="dim"))
    verdict = f"breaks {len(broken)} of {len(RULES)} rules" if broken else f"keeps all {len(RULES)} rules"
    console.print(Text(f"{kind} {verdict}, in {plural(len(checked), 'setting')}."))

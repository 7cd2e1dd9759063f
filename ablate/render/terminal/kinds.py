"""Kinds as text: all that a space or a command can name (`ablate kinds`), and what `ablate check-kind` found."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ablate.analysis.text import plural
from ablate.contracts.checking import CheckedKind, CheckedSpec, UntriedKind
from ablate.contracts.contract import Finding
from ablate.errors import ArgumentError
from ablate.plugins import FAMILIES
from ablate.spec.base import Family, Spec
from ablate.spec.named import block_names, model_names, named_block, named_model


def kinds_json(family: str | None = None) -> dict[str, Any]:
    """Kinds as plain data: a key for each family, `blocks` and `models`; or that of one of them alone.

    Raises:
        ArgumentError: There is no such family.
    """
    named_groups: dict[str, Callable[[], list[dict[str, Any]]]] = {"blocks": _blocks, "models": _models}
    families = [*FAMILIES, *named_groups]
    if family is not None and family not in families:
        near = difflib.get_close_matches(family, families, n=1)
        remedy = f"Did you mean `{near[0]}`?" if near else None
        raise ArgumentError(
            "there is no such family", where="FAMILY", expected=", ".join(families), got=family, remedy=remedy
        )
    return {
        name: named_groups[name]() if name in named_groups else _members(FAMILIES[name])
        for name in families
        if family in (None, name)
    }


def _members(family: Family) -> list[dict[str, Any]]:
    return [
        {"kind": kind, **member.facts(), "description": _first_line(member)}
        for kind, member in family.members().items()
    ]


def _blocks() -> list[dict[str, Any]]:
    blocks = [(name, named_block(name)) for name in block_names()]
    return [{"name": name, "description": block.description, "source": block.source} for name, block in blocks]


def _models() -> list[dict[str, Any]]:
    models = [(name, named_model(name)) for name in model_names()]
    return [{"name": name, "description": model.description, "source": model.source} for name, model in models]


def print_kinds(console: Console, family: str | None = None) -> None:
    """Print a list of one family: what each kind is, and below it its facts; or the names in every family."""
    if family is None:
        table = Table.grid(padding=(0, 2, 0, 0))
        for title, names in _all_names().items():
            table.add_row(Text(title, style="bold"), Text(", ".join(names), style="cyan"))
        console.print(table)
        console.print("\n`ablate kinds FAMILY` says what each of a family is.", style="dim")
        return
    listed = kinds_json(family)
    width = max(len(_name(kind)) for group in listed.values() for kind in group)
    for title, group in listed.items():
        console.print(Text(title, style="bold"))
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(min_width=width + 2, no_wrap=True)
        for kind in group:
            table.add_row(Text(f"  {_name(kind)}", style="cyan"), Text(kind["description"]))
            if facts := _facts(kind):
                table.add_row("", Text("; ".join(facts), style="dim"))
        console.print(table)
        console.print()


def _all_names() -> dict[str, list[str]]:
    members = {title: list(family.members()) for title, family in FAMILIES.items()}
    return {**members, "blocks": list(block_names()), "models": list(model_names())}


def _name(kind: dict[str, Any]) -> str:
    return str(kind.get("kind") or kind["name"])


def _facts(kind: dict[str, Any]) -> list[str]:
    """Facts in words; of those that are true or false, the names of the true ones."""
    facts = {name: fact for name, fact in kind.items() if name not in ("kind", "name", "description")}
    forms = " or ".join(name for name, fact in facts.items() if fact is True)
    words = [forms if isinstance(fact, bool) else fact for fact in facts.values()]
    return [word for word in dict.fromkeys(words) if word]


def _first_line(member: type) -> str:
    return (inspect.getdoc(member) or "").partition("\n")[0].rstrip(".")


def check_json(checked: CheckedKind | UntriedKind) -> dict[str, Any]:
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
                "spec": one.spec.canonical(),
                "context": _plain(finding.context),
                "detail": finding.detail,
            }
            for one in checked.specs
            for finding in one.findings
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
    for one in checked.specs:
        for finding in one.findings:
            broken.setdefault(finding.rule, []).append((one, finding))
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
    return list(dict.fromkeys(warning for one in checked.specs for warning in one.warnings))

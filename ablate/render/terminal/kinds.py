"""Prints the kinds and the named models that a space may name, and what `ablate check-kind` found about a kind."""

from __future__ import annotations

import difflib
import inspect
import io
import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from ruamel.yaml import YAML

from ablate.analysis.numbers import plural
from ablate.contracts.checking import CheckedKind, CheckedSpec, UntriedKind
from ablate.contracts.contract import Finding
from ablate.errors import ArgumentError
from ablate.nn.model import model_cost
from ablate.plugins import FAMILIES
from ablate.spec.base import Family, Spec
from ablate.spec.lookup import FoundModel
from ablate.spec.named import block_names, model_names, named_block, named_model
from ablate.trained.hugging_face.check import Compared
from ablate.trained.hugging_face.checkpoint import CONFIG, Imported

if TYPE_CHECKING:
    from ablate.render.terminal import outputs


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


WIDTH = 120


def imported_json(imported: Imported) -> dict[str, Any]:
    """What was read, as plain data."""
    spec = imported.spec
    return {
        "model_type": imported.architecture.model_type,
        "family": spec.family,
        "depth": spec.depth,
        "width": spec.width,
        "vocabulary": imported.vocabulary,
        "context": imported.context,
        "parameters": model_cost(spec, vocabulary=imported.vocabulary, context=imported.context, length=1).parameters,
    }


def summary(imported: Imported) -> str:
    """What was read, in one line."""
    facts = imported_json(imported)
    return (
        f"{facts['model_type']}: {facts['family']}, {plural(facts['depth'], 'layer')} of width {facts['width']}, "
        f"{facts['vocabulary']:,} tokens, context {facts['context']:,}, {facts['parameters']:,} parameters"
    )


def compared_line(imported: Imported, compared: Compared | None, *, weights: bool) -> str:
    """What is known of whether the model is the one that `transformers` reads, and trains with dropout."""
    spec, clause = imported.spec, imported.architecture.dropout
    drops = spec.dropout or any(block.dropout for block in spec.blocks)
    of_training = f" In training its dropout is not quite that of transformers: {clause}." if clause and drops else ""
    return _comparison_in_words(imported, compared, weights=weights) + of_training


def _comparison_in_words(imported: Imported, compared: Compared | None, *, weights: bool) -> str:
    if not weights:
        return "The weights were not read: the model starts from random ones."
    if imported.architecture.own:
        return "The code of the model is ablate's own, so there is nothing to compare it with."
    if compared is None:
        return "Not compared with transformers: if a setting means something else there, nobody has noticed."
    precision = "double" if compared.double else "single"
    of = f"those of transformers in {precision} precision, on inputs of up to {plural(compared.tokens, 'token')}"
    if math.isnan(compared.difference):
        return f"Some logits are not numbers, so they cannot be compared with {of}."
    verdict = "rounding alone" if compared.same else f"more than the {compared.bound:.2g} that rounding explains"
    return f"Logits differ by at most {compared.difference:.2g} from {of}: {verdict}."


def model_file(imported: Imported, folder: Path, *, weights: bool) -> str:
    """The model and the weights that it starts from, as a model file, which a space can extend."""
    yaml = YAML()
    yaml.width = WIDTH
    yaml.default_flow_style = None  # innermost mappings on one line
    yaml.representer.ignore_aliases = lambda *values: True
    plain = {
        "description": f"The {imported.architecture.model_type} model in {folder.name}",
        "source": str(folder / CONFIG),
        "vocabulary": imported.vocabulary,
        "context": imported.context,
        **({"init_from": str(folder)} if weights else {}),
        "model": imported.model,
    }
    text = io.StringIO()
    yaml.dump(plain, text)
    return (
        f"# Written by `ablate import`: {summary(imported)}\n"
        f"# A space that starts from it names this file: `extends: FILE`.\n{text.getvalue()}"
    )


def model_json(model: FoundModel) -> outputs.ValidModelOutput:
    """What is known of a named model, as plain data."""
    spec, named = model.spec, model.named
    cost = model_cost(spec, vocabulary=named.vocabulary, context=named.context, length=1)
    return {
        "model": model.name,
        "description": named.description,
        "source": named.source,
        "family": spec.family,
        "depth": spec.depth,
        "width": spec.width,
        "vocabulary": named.vocabulary,
        "context": named.context,
        "parameters": cost.parameters,
        "published_parameters": named.parameters,
    }


def model_line(model: FoundModel) -> str:
    """What is known of a named model, in one line."""
    facts = model_json(model)
    published = facts["published_parameters"]
    also = (
        ""
        if published is None
        else ", as published"
        if published == facts["parameters"]
        else f", {published:,} published"
    )
    return (
        f"{model.name} is a valid model: {facts['family']}, {plural(facts['depth'], 'layer')} of width "
        f"{facts['width']}, {facts['parameters']:,} parameters{also}. {model.named.description}."
    )


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

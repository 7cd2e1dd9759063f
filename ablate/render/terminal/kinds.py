"""`ablate kinds`: every kind of every family that a space or a command can name, and the named blocks and models."""

from __future__ import annotations

import inspect
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ablate.plugins import FAMILIES
from ablate.spec.named import block_names, model_names, named_block, named_model


def kinds_json() -> dict[str, Any]:
    """All kinds as plain data: a key for each family, `blocks` and `models`."""
    families = {
        name: [
            {"kind": kind, **member.facts(), "description": _first_line(member)}
            for kind, member in family.members().items()
        ]
        for name, family in FAMILIES.items()
    }
    blocks = [(name, named_block(name)) for name in block_names()]
    named = [{"name": name, "description": block.description, "source": block.source} for name, block in blocks]
    models = [
        {"name": name, "description": model.description, "source": model.source}
        for name, model in ((name, named_model(name)) for name in model_names())
    ]
    return {**families, "blocks": named, "models": models}


def print_kinds(console: Console) -> None:
    """Print a list for each family: what each kind is, and below it its facts."""
    listed = kinds_json()
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

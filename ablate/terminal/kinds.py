"""`ablate kinds`: every kind of mixer, task and design that a space can name, and the named blocks."""

from __future__ import annotations

import inspect
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ablate.spec.design import DESIGNS
from ablate.spec.mixer import MIXERS, MixerSpec
from ablate.spec.named import block_names, named_block
from ablate.spec.task import TASKS


def kinds_json() -> dict[str, Any]:
    """All kinds as plain data: keys `mixers`, `tasks`, `designs`, `blocks`."""
    return {
        "mixers": [
            {
                "kind": kind,
                "complexity": member.complexity,
                "causal": member.causal_form,
                "bidirectional": member.bidirectional_form,
                "source": member.source,
                "description": _first_line(member),
            }
            for kind, member in MIXERS.members().items()
            if issubclass(member, MixerSpec)
        ],
        "tasks": [{"kind": kind, "description": _first_line(member)} for kind, member in TASKS.members().items()],
        "designs": [{"kind": kind, "description": _first_line(member)} for kind, member in DESIGNS.members().items()],
        "blocks": [
            {"name": name, "description": block.description, "source": block.source}
            for name in block_names()
            for block in [named_block(name)]
        ],
    }


def print_kinds(console: Console) -> None:
    """Print them as four lists: what each kind is, and below it its facts."""
    kinds = kinds_json()
    for mixer in kinds["mixers"]:
        forms = [form for form in ("causal", "bidirectional") if mixer[form]]
        mixer |= {"name": mixer["kind"], "facts": [mixer["complexity"], " or ".join(forms), mixer["source"]]}
    for kind in (*kinds["tasks"], *kinds["designs"]):
        kind |= {"name": kind["kind"], "facts": []}
    for block in kinds["blocks"]:
        block["facts"] = [block["source"]]
    width = max(len(kind["name"]) for group in kinds.values() for kind in group)
    for title, group in kinds.items():
        console.print(Text(title, style="bold"))
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(min_width=width + 2, no_wrap=True)
        for kind in group:
            table.add_row(Text(f"  {kind['name']}", style="cyan"), kind["description"])
            if facts := [fact for fact in kind["facts"] if fact]:
                table.add_row("", Text("; ".join(facts), style="dim"))
        console.print(table)
        console.print()


def _first_line(member: type) -> str:
    return (inspect.getdoc(member) or "").partition("\n")[0].rstrip(".")

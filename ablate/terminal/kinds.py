"""`ablate kinds`: every kind of mixer, task and design that a space can name."""

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
    """Print them as four tables that 80 columns hold."""
    kinds = kinds_json()
    for mixer in kinds["mixers"]:
        forms = [form for form in ("causal", "bidirectional") if mixer[form]]
        mixer["sees"] = " or ".join(forms)
    _table(console, "mixers", kinds["mixers"], "kind", ("description", "complexity", "sees", "source"))
    _table(console, "tasks", kinds["tasks"], "kind", ("description",))
    _table(console, "designs", kinds["designs"], "kind", ("description",))
    _table(console, "named blocks", kinds["blocks"], "name", ("description", "source"))


def _table(console: Console, title: str, rows: list[dict[str, Any]], name: str, facts: tuple[str, ...]) -> None:
    """A row for each kind: its name, and beside it the description with the other facts below."""
    console.print(Text(title, style="bold"))
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True, style="cyan")
    table.add_column()
    for row in rows:
        first, *others = (str(row[fact]) for fact in facts)
        text = Text(first)
        if others:
            text.append("\n" + "; ".join(others), style="dim")
        table.add_row(Text(str(row[name])), text)
    console.print(table)
    console.print()


def _first_line(member: type) -> str:
    return (inspect.getdoc(member) or "").partition("\n")[0].rstrip(".")

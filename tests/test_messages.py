"""Advice that messages must not give."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
DELETES = re.compile(
    r"\b(remove|delete|erase|discard|throw away|rm)\b[^.;]*"
    r"\b(it|them|file|folder|data|store|weights|cache|checkpoint)\b",
    re.IGNORECASE,
)


def messages(source: Path) -> Iterator[str]:
    """Every string of a module that is not a docstring."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


def test_no_message_advises_to_delete_what_may_be_good() -> None:
    assert DELETES.search("Remove the file and train the trial again, into a new store.")
    sources = [path for package in ("ablate", "dashboard") for path in (ROOT / package).rglob("*.py")]
    assert len(sources) > 100
    advice = [(path.name, text) for path in sources for text in messages(path) if DELETES.search(text)]
    assert advice == []

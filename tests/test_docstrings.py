"""Every public method has a docstring unless it overrides one: ruff's D102 would ask for a second docstring there."""

from __future__ import annotations

import ast
import importlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Class:
    """A class in a source file."""

    node: ast.ClassDef
    file: Path
    imports: dict[str, tuple[str, str]]
    """Local name to module and name there; the name is empty for a module."""

    def methods(self) -> Iterator[ast.FunctionDef]:
        for node in self.node.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield node

    def bases(self) -> Iterator[str]:
        for base in self.node.bases:
            yield ast.unparse(base.value if isinstance(base, ast.Subscript) else base)


def imports_of(tree: ast.Module) -> dict[str, tuple[str, str]]:
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                first = name.name.partition(".")[0]
                found[name.asname or first] = (name.name if name.asname else first, "")
        elif isinstance(node, ast.ImportFrom):
            found |= {name.asname or name.name: (str(node.module), name.name) for name in node.names}
    return found


@cache
def classes() -> dict[str, list[Class]]:
    """The classes of `ablate/` and `dashboard/` by name."""
    found = defaultdict(list)
    for folder in ("ablate", "dashboard"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            imports = imports_of(tree)
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(Class(node, file, imports))
    return dict(found)


def overrides(owner: Class, method: str) -> bool:
    """Whether a base of the class, ours or of another package, has this method."""
    return any(has(owner, base, method) for base in owner.bases())


def has(owner: Class, base: str, method: str) -> bool:
    ours = classes().get(base.rpartition(".")[2], [])
    if ours:
        return any(method in {each.name for each in one.methods()} or overrides(one, method) for one in ours)
    first, *rest = base.split(".")
    if first not in owner.imports:
        return False
    module, name = owner.imports[first]
    found = importlib.import_module(module)
    for part in filter(None, (name, *rest)):
        found = getattr(found, part)
    return hasattr(found, method)


def test_public_methods_that_override_nothing_have_docstrings() -> None:
    missing = [
        f"{owner.file.relative_to(ROOT)}:{method.lineno} {owner.node.name}.{method.name}"
        for name, each in classes().items()
        if not name.startswith("_")
        for owner in each
        for method in owner.methods()
        if ast.get_docstring(method) is None and not overrides(owner, method.name)
    ]
    assert missing == []

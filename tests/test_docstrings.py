"""Public names: each means one thing, and every public method has a docstring unless it overrides one."""

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


def public_classes(source: str) -> Iterator[str]:
    """The names of the public classes that a module defines at its top level."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def test_public_class_names_are_unique() -> None:
    files = defaultdict(list)
    for folder in ("ablate", "dashboard"):
        for file in (ROOT / folder).rglob("*.py"):
            for name in public_classes(file.read_text(encoding="utf-8")):
                files[name].append(file.relative_to(ROOT).as_posix())
    assert len(files) > 200
    assert {name: where for name, where in files.items() if len(where) > 1} == {}


def test_only_public_classes_at_the_top_level_count() -> None:
    source = "class A:\n    class B: pass\nclass _C: pass\ndef f():\n    class D: pass\nclass E: pass\n"
    assert list(public_classes(source)) == ["A", "E"]

"""A public class name means one thing: no two classes of `ablate/` and `dashboard/` share one."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent


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

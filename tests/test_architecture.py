"""Data flows one way: a package imports only what stands to its right in its own need, never back."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ablate

ROOT = Path(ablate.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

ANYTHING = {path.stem if path.is_file() else path.name for path in ROOT.iterdir()} - {"__pycache__", "py"}
DRIVERS = {"__main__", "cli", "commands", "terminal", "api", "notebook", "contracts", "__init__"}
"""What people hold in their hands: it may use everything."""

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "extras": {"errors"},
    "late": set(),
    "locations": {"errors"},
    "kernels": {"spec"},
    "stats": set(),
    "plugins": {"errors", "locations", "spec", "tasks", "report"},
    "spec": {"errors", "locations"},
    "store": {"errors", "late", "locations"},
    "pack": {"spec", "kernels"},
    "kinds": {"errors", "spec", "pack", "kernels"},
    "decoding": set(),
    "tasks": {"errors", "extras", "locations", "spec", "decoding"},
    "model": {"spec", "pack"},
    "designs": {"errors", "extras", "spec", "stats"},
    "drawing": {"errors", "spec"},
    "timing": {"errors", "spec", "kernels", "pack", "model"},
    "training": {"spec", "pack", "model", "tasks"},
    "report": {"errors", "extras", "late", "spec", "designs", "stats", "store"},
    "engine": ANYTHING - DRIVERS - {"report"},
}

CORE = {"spec", "pack", "kernels", "kinds", "model", "training"}
CORE_NEEDS = {"torch", "pydantic", "pydantic_core", "ruamel", "numpy"}
"""The core runs with these alone."""


def package_of(module: str) -> str:
    """`spec` of `ablate.spec.base`; `__init__` of `ablate` itself."""
    return [*module.split("."), "__init__"][1]


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file imports, also inside functions and under `TYPE_CHECKING`, with its line."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: imports are absolute"
            assert node.module is not None
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def named(file: Path) -> str:
    return package_of(".".join(["ablate", *file.relative_to(ROOT).with_suffix("").parts]))


def arrows_back(file: Path, package: str) -> list[str]:
    """The imports of a file of `package` that the table does not allow."""
    allowed = ANYTHING if package in DRIVERS else {package, *MAY_IMPORT[package]}
    return [
        f"{file}:{line}: {package} imports {module}"
        for line, module in imports(file)
        if module.split(".")[0] == "ablate" and package_of(module) not in allowed
    ]


def test_every_package_has_its_place() -> None:
    assert {named(file) for file in FILES} == {*MAY_IMPORT, *DRIVERS}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_arrow_runs_back(file: Path) -> None:
    assert arrows_back(file, named(file)) == []


def test_the_table_has_no_circles() -> None:
    placed: set[str] = set()
    waiting = {package: needs - {package} for package, needs in MAY_IMPORT.items() if package != "engine"}
    while waiting:
        free = {package for package, needs in waiting.items() if needs <= placed}
        assert free, f"a circle among {sorted(waiting)}"
        placed |= free
        waiting = {package: needs for package, needs in waiting.items() if package not in free}


@pytest.mark.parametrize("file", [file for file in FILES if named(file) in CORE], ids=lambda file: file.stem)
def test_the_core_needs_little(file: Path) -> None:
    roots = {module.split(".")[0] for _, module in imports(file)}
    assert roots - CORE_NEEDS - sys.stdlib_module_names - {"ablate"} == set()


@pytest.mark.parametrize(
    "line",
    [
        "import ablate.engine.plan",
        "from ablate.tasks.base import Task",
        "from ablate import tasks",
        "def f():\n    from ablate.store import Store",
        "if TYPE_CHECKING:\n    from ablate.designs.base import Design",
    ],
)
def test_the_walk_sees_every_sort_of_import(line: str, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(f"from ablate.errors import AblateError\n{line}\n", encoding="utf-8")
    assert len(arrows_back(file, "spec")) == 1


def test_no_two_test_files_share_a_name() -> None:
    """Test folders are no packages, so that of two files of one name pytest finds only the first."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)

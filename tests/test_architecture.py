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

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "late": set(),
    "cores": set(),
    "command_line": set(),
    "decoding": set(),
    "stats": set(),
    "extras": {"errors"},
    "locations": {"errors"},
    "spec": {"errors", "locations"},
    "store": {"errors", "late", "locations"},
    "nn": set(),
    "nn.kernels": {"spec"},
    "nn.pack": {"spec", "nn.kernels"},
    "nn.model": {"spec", "nn.pack"},
    "kinds": {"errors", "spec", "nn.pack", "nn.kernels"},
    "tasks": {"errors", "extras", "locations", "spec", "decoding"},
    "designs": {"errors", "extras", "spec", "stats"},
    "timing": {"errors", "spec", "nn.kernels", "nn.pack", "nn.model"},
    "training": {"spec", "nn.pack", "nn.model", "tasks"},
    "analysis": {"errors", "extras", "late", "spec", "designs", "stats", "store"},
    "render": {"errors", "extras", "spec", "stats", "store", "analysis"},
    "render.drawing": {"errors", "spec"},
    "plugins": {"errors", "locations", "spec", "tasks", "render"},
    "planning": {"errors", "cores", "spec", "nn.model", "tasks", "designs", "training", "store"},
    "trained": {"errors", "spec", "nn.pack", "nn.model", "tasks", "decoding", "plugins"},
    "execution": {
        *("errors", "cores", "command_line", "spec", "nn.kernels", "tasks", "designs", "training", "store", "plugins"),
        *("planning", "trained"),
    },
}
"""Each package, or part of one, and what it may import. A part that is not named belongs to its package."""

ANYTHING = {"__main__", "cli", "render.terminal", "api", "notebook", "contracts", "__init__"}
"""What people hold in their hands: it may import everything."""

PLACES = {*MAY_IMPORT, *ANYTHING}

CORE = {"spec", "nn", "nn.pack", "nn.kernels", "nn.model", "kinds", "training"}
CORE_NEEDS = {"torch", "pydantic", "pydantic_core", "ruamel", "numpy"}
"""The core runs with these alone."""


def package_of(module: str) -> str:
    """The longest name of the table that a module begins with; its first part if there is none."""
    parts = [*module.split(".")[1:], "__init__"]
    names = [".".join(parts[:size]) for size in range(len(parts), 0, -1)]
    return next((name for name in names if name in PLACES), parts[0])


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
    if package in ANYTHING:
        return []
    return [
        f"{file}:{line}: {package} imports {module}"
        for line, module in imports(file)
        if module.split(".")[0] == "ablate" and package_of(module) not in {package, *MAY_IMPORT[package]}
    ]


def test_every_package_has_its_place() -> None:
    assert {named(file) for file in FILES} == PLACES


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_arrow_runs_back(file: Path) -> None:
    assert arrows_back(file, named(file)) == []


def test_the_table_has_no_circles() -> None:
    assert set().union(*MAY_IMPORT.values()) <= set(MAY_IMPORT)
    placed: set[str] = set()
    while waiting := {package: needs for package, needs in MAY_IMPORT.items() if package not in placed}:
        free = {package for package, needs in waiting.items() if needs <= placed}
        assert free, f"a circle among {sorted(waiting)}"
        placed |= free


@pytest.mark.parametrize("file", [file for file in FILES if named(file) in CORE], ids=lambda file: file.stem)
def test_the_core_needs_little(file: Path) -> None:
    roots = {module.split(".")[0] for _, module in imports(file)}
    assert roots - CORE_NEEDS - sys.stdlib_module_names - {"ablate"} == set()


@pytest.mark.parametrize(
    "line",
    [
        "import ablate.planning.plan",
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

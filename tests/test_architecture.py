"""Data flows one way: a package imports only the layers listed for it, never back. Public names and docstrings."""

from __future__ import annotations

import ast
import gc
import importlib
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import ablate

ROOT = Path(ablate.__file__).parent
DASHBOARD = ROOT.parent / "dashboard"
FILES = sorted([*ROOT.rglob("*.py"), *DASHBOARD.rglob("*.py")])

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "roles": set(),
    "metrics": set(),
    "lazy_imports": set(),
    "processes": set(),
    "machine": set(),
    "portable_names": set(),
    "devices": {"errors"},
    "decoding": set(),
    "stats": {"lazy_imports"},
    "extras": {"errors"},
    "locations": {"errors"},
    "spec": {"roles", "metrics", "errors", "locations"},
    "store": {"roles", "errors", "extras", "lazy_imports", "locations"},
    "nn": set(),
    "nn.kernels": {"errors", "locations", "spec"},
    "nn.pack": {"spec", "nn.kernels"},
    "nn.model": {"errors", "spec", "nn.kernels", "nn.pack"},
    "kinds": {"errors", "spec", "nn.pack", "nn.kernels"},
    "downstream": {"errors", "extras", "spec"},
    "tasks": {"errors", "extras", "locations", "spec", "nn.kernels", "decoding", "downstream"},
    "designs": {"roles", "errors", "extras", "spec", "stats"},
    "timing": {"errors", "machine", "spec", "nn.kernels", "nn.pack", "nn.model"},
    "training": {"errors", "extras", "metrics", "spec", "nn.kernels", "nn.pack", "nn.model", "tasks"},
    "analysis": {
        "roles",
        "metrics",
        "errors",
        "devices",
        "portable_names",
        "extras",
        "lazy_imports",
        "processes",
        "spec",
        "designs",
        "stats",
        "store",
    },
    "tables": {"errors", "extras", "locations", "portable_names", "processes", "spec", "stats", "store", "analysis"},
    "render": {
        *(
            "errors",
            "metrics",
            "roles",
            "locations",
            "portable_names",
            "extras",
            "processes",
            "spec",
            "stats",
            "store",
            "analysis",
            "render.drawing",
        ),
    },
    "render.drawing": {"errors", "locations", "spec"},
    "render.terminal.console": {"errors", "processes"},
    "serving": {"errors", "extras", "locations", "processes", "store", "render.terminal.console"},
    "dashboard": {
        "roles",
        "errors",
        "metrics",
        "processes",
        "locations",
        "portable_names",
        "devices",
        "spec",
        "stats",
        "store",
        "analysis",
        "render",
        "serving",
    },
    "assistant": {"errors", "locations", "processes", "spec"},
    "trackers": {"errors", "portable_names", "extras", "locations", "spec"},
    "plugins": {"errors", "locations", "spec", "tasks", "analysis", "trackers"},
    "planning": {
        "processes",
        "roles",
        "metrics",
        "errors",
        "machine",
        "spec",
        "nn.model",
        "tasks",
        "designs",
        "training",
        "store",
        "trained",
        "devices",
        "locations",
    },
    "trained": {
        "errors",
        "machine",
        "extras",
        "locations",
        "spec",
        "nn.pack",
        "nn.model",
        "kinds",
        "tasks",
        "decoding",
        "downstream",
        "plugins",
    },
    "execution": {
        *(
            "errors",
            "metrics",
            "extras",
            "roles",
            "processes",
            "locations",
            "machine",
            "devices",
            "spec",
            "nn.kernels",
            "nn.model",
            "tasks",
            "designs",
            "training",
            "store",
            "plugins",
            "trackers",
        ),
        *("planning", "trained", "timing"),
    },
}
"""Each package, or part of one, and what it may import. A part that is not named belongs to its package."""

ANYTHING = {
    *("__init__", "__main__", "api", "cli", "contracts", "notebook", "render.terminal"),
    "dashboard.drafter",
}
"""What people hold in their hands: it may import everything. The drafter is a process of its own, with torch."""

PLACES = {*MAY_IMPORT, *ANYTHING}

LATE: dict[str, str] = {
    "api": "Ray is an extra",
    "cli": "a command line imports the command that is called, and what it needs",
    "downstream.harness": "lm-eval is an extra",
    "execution.options": "the command line, whose help shows the options, starts without the models of settings",
    "execution.worker": "torch is imported after the process is bound to its cores",
    "render.formats.html": "the dashboard, which has no torch, lists the formats; drawing a block needs it",
    "render.formats.slides": "the other formats are found without torch, which drawing a block needs",
    "tasks.language_model": "a task is described without torch",
    "tasks.scores": "a task is described without torch",
}
"""Modules that may import others of ours inside a function, each with its reason."""

MUTUAL = (
    frozenset({"ablate.spec.layer"}),
    frozenset({"ablate.spec.block"}),
)
"""Modules whose types mention one another: one imports the other for annotations alone, under `TYPE_CHECKING`."""

CORE = {"spec", "nn", "nn.pack", "nn.kernels", "nn.model", "kinds", "training"}
CORE_NEEDS = {"torch", "pydantic", "pydantic_core", "ruamel", "numpy"}
"""The core runs with these alone."""


def package_of(module: str) -> str:
    """The longest name of the table that a module begins with; its first part if there is none."""
    parts = module.split(".")
    parts = parts if parts[0] == "dashboard" else [*parts[1:], "__init__"]
    names = [".".join(parts[:size]) for size in range(len(parts), 0, -1)]
    return next((name for name in names if name in PLACES), parts[0])


def name_of(file: Path) -> str:
    """The module of a file: `ablate.spec.base`, `dashboard.shared.store`."""
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(file): file for file in FILES}


def imports(file: Path, *, inside: bool | None = None) -> Iterator[tuple[int, str]]:
    """Every module or name that a file imports, also under `TYPE_CHECKING`, with its line.

    Args:
        file: The source.
        inside: True for imports inside functions alone, False for all others, None for both.
    """
    yield from ((line, name) for line, name, late in every_import(file) if inside is None or late is inside)


@cache
def tree_of(file: Path) -> ast.Module:
    gc.disable()  # collections among the nodes of all files take longer than parsing them
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    finally:
        gc.enable()


@cache
def nodes_of(file: Path) -> list[ast.AST]:
    """Every node of the source of a file."""
    return list(ast.walk(tree_of(file)))


@cache
def every_import(file: Path) -> list[tuple[int, str, bool]]:
    """Line and name of every import of a file, and whether it is inside a function."""
    nested = re.search(r"^ +(from [\w.]+ )?import ", file.read_text(encoding="utf-8"), re.MULTILINE)
    nodes: Sequence[ast.AST] = nodes_of(file) if nested else tree_of(file).body
    functions = [node for node in nodes if nested and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    late = {id(node) for function in functions for node in ast.walk(function)}
    found: list[tuple[int, str, bool]] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += ((node.lineno, alias.name, id(node) in late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: imports are absolute"
            assert node.module is not None
            found += ((node.lineno, f"{node.module}.{alias.name}", id(node) in late) for alias in node.names)
    return found


def named_late(file: Path) -> Iterator[tuple[int, str]]:
    """Every module of ours that a string of a file names, as late imports and child processes do, with its line.

    The packages of families are left out: their kinds are discovered.
    """
    if not re.search(r"""["'](ablate|dashboard)\.""", file.read_text(encoding="utf-8")):
        return
    nodes = nodes_of(file)
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "Family"]
    other = {id(node) for call in calls for node in ast.walk(call)}
    other |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
    for node in nodes:
        text = node.value if isinstance(node, ast.Constant) and id(node) not in other else None
        if isinstance(text, str) and "." in text and text.partition(":")[0] in MODULES:
            yield node.lineno, text.partition(":")[0]


def named(file: Path) -> str:
    return package_of(name_of(file))


def is_ours(module: str) -> bool:
    return module.split(".")[0] in ("ablate", "dashboard")


def module_of(name: str) -> str | None:
    """The module of ours that `package.module.name` imports from; None if there is none."""
    return next((module for module in (name, name.rpartition(".")[0]) if module in MODULES), None)


def arrows_back(file: Path, package: str) -> list[str]:
    """The imports of a file of `package` that the table does not allow."""
    if package in ANYTHING:
        return []
    return [
        f"{file}:{line}: {package} imports {module}"
        for line, module in (*imports(file), *named_late(file))
        if is_ours(module) and package_of(module) not in {package, *MAY_IMPORT[package]}
    ]


def imports_of(files: Iterable[Path], is_wrong: Callable[[str], bool]) -> list[str]:
    """The imports in these files whose top package is a wrong one."""
    return [
        f"{file}:{line}: imports {name}"
        for file in files
        for line, name in imports(file)
        if is_wrong(name.split(".")[0])
    ]


def test_every_package_is_in_the_table() -> None:
    assert {named(file) for file in FILES} == PLACES


def test_no_package_imports_a_later_layer() -> None:
    assert [arrow for file in FILES for arrow in arrows_back(file, named(file))] == []


def test_the_table_has_no_cycles() -> None:
    assert set().union(*MAY_IMPORT.values()) <= set(MAY_IMPORT)
    placed: set[str] = set()
    while waiting := {package: needs for package, needs in MAY_IMPORT.items() if package not in placed}:
        free = {package for package, needs in waiting.items() if needs <= placed}
        assert free, f"a circle among {sorted(waiting)}"
        placed |= free


def cycles(graph: Mapping[str, Set[str]]) -> list[str]:
    """The modules of a first cycle of imports, in order; nothing if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_is_in_an_import_cycle() -> None:
    graph = {
        module: {found for _, name in imports(file, inside=False) if (found := module_of(name))} - {module}
        for module, file in MODULES.items()
    }
    assert sum(map(len, graph.values())) > 1000
    for together in MUTUAL:
        for module in together:
            graph[module] -= together
    assert cycles(graph) == []
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) != []


def test_functions_import_no_modules_of_ours() -> None:
    late = {
        package_of(name_of(file)) if package_of(name_of(file)) == "cli" else name_of(file).removeprefix("ablate.")
        for file in FILES
        if any(is_ours(module) for _, module in imports(file, inside=True))
    }
    assert late == set(LATE), "import at the top of the module, or say why not in LATE"


def test_the_core_needs_little() -> None:
    known = CORE_NEEDS | sys.stdlib_module_names | {"ablate"}
    assert imports_of((file for file in FILES if named(file) in CORE), lambda root: root not in known) == []


@pytest.mark.parametrize(
    "line",
    [
        "import ablate.planning.plan",
        "from ablate.tasks.language_model import LanguageModelSpec",
        "from ablate import tasks",
        "def f():\n    from ablate.store import Store",
        "if TYPE_CHECKING:\n    from ablate.designs.base import Design",
        'lazy_names(__name__, {"make_plan": "ablate.planning.plan"})',
        'import_module("ablate.store")',
    ],
)
def test_every_form_of_import_is_found(line: str, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(f"from ablate.errors import AblateError\n{line}\n", encoding="utf-8")
    assert len(arrows_back(file, "spec")) == 1


def test_what_is_installed_imports_no_other_folder_of_the_repository() -> None:
    others = {path.name for path in ROOT.parent.iterdir() if path.is_dir()} - {"ablate", "dashboard"}
    assert imports_of(FILES, lambda root: root in others) == []


def test_no_two_test_files_share_a_name() -> None:
    """Test folders are not packages, so that of two files of one name pytest finds only the first."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)


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


def names_imported(nodes: Iterable[ast.AST]) -> dict[str, tuple[str, str]]:
    found = {}
    for node in nodes:
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
    for file in FILES:
        imports = names_imported(tree_of(file).body)
        for node in tree_of(file).body:
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
        f"{owner.file.relative_to(ROOT.parent)}:{method.lineno} {owner.node.name}.{method.name}"
        for name, each in classes().items()
        if not name.startswith("_")
        for owner in each
        for method in owner.methods()
        if ast.get_docstring(method) is None and not overrides(owner, method.name)
    ]
    assert missing == []


def public_classes(tree: ast.Module) -> Iterator[str]:
    """The names of the public classes that a module defines at its top level."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def test_public_class_names_are_unique() -> None:
    files = defaultdict(list)
    for file in FILES:
        for name in public_classes(tree_of(file)):
            files[name].append(file.relative_to(ROOT.parent).as_posix())
    assert len(files) > 200
    assert {name: where for name, where in files.items() if len(where) > 1} == {}


def test_only_public_classes_at_the_top_level_count() -> None:
    source = "class A:\n    class B: pass\nclass _C: pass\ndef f():\n    class D: pass\nclass E: pass\n"
    assert list(public_classes(ast.parse(source))) == ["A", "E"]

"""The identity of source: layout does not count, what code does counts, and so do the modules beside it."""

from __future__ import annotations

import ast
import hashlib
import importlib
import linecache
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.spec.source_code import ModuleCode, differences, module_code, read_definitions, read_modules

SOURCE = '''"""A module."""
import math
from typing import Literal

SCALE = 3
NAMES = ["a", 'b']


class Mixer:
    """A class."""

    kind: Literal["mine"] = "mine"
    """A field."""
    width = 4 * (2 + SCALE)

    def build(self, context):
        """A method."""
        if context.width > 8 and not context.causal:
            return [x ** 2 for x in range(context.width)]
        return {"text": f"{context.width:>3}", **{}}

    @property
    def size(self): return self.width - 1


def scale(x, by=0.5, *, how="fast"):
    # a comment
    total = 0
    for step in range(10):
        total += x[step] * by
    while total > 1:
        total /= math.pi
    try:
        return lambda y: y @ total
    except ValueError as error:
        raise RuntimeError(how) from error


async def later():
    pass
'''
WHOLE = module_code(SOURCE.encode())
DEFINITIONS = {"", "Mixer", "Mixer.build", "Mixer.size", "scale", "later"}


def laid_out_otherwise(source: str, numbers: random.Random) -> str:
    """The same code in another layout."""
    lines = []
    for line in source.splitlines():
        if numbers.random() < 0.2:
            lines.append("" if numbers.random() < 0.5 else "# " + "x" * numbers.randrange(9))
        commented = line and '"""' not in line and numbers.random() < 0.3
        lines.append(f"{line}  # why" if commented else line)
    text = "\n".join(lines)
    for before, after in (
        ('"""A module."""', '"""Other words."""'),
        ('"""A class."""', ""),
        ('        """A method."""\n', '        """A method.\n\n        In many words.\n        """\n'),
        ("'b'", '"b"'),
        ("4 * (2 + SCALE)", "(4\n        * (2 + SCALE)\n    )"),
        ("x ** 2", "x**2"),
        ("10)", "1_0)"),
        ("def scale(x, by=0.5", "def scale(\n    x,\n    by=0.50"),
        ("    pass\n", '    """Nothing yet."""\n'),
        ('"fast"', '"fa" "st"'),
    ):
        if numbers.random() < 0.5:
            text = text.replace(before, after)
    return ast.unparse(ast.parse(text)) if numbers.random() < 0.3 else text


@given(st.randoms(use_true_random=False))
def test_layout_comments_and_docstrings_do_not_count(numbers: random.Random) -> None:
    assert module_code(laid_out_otherwise(SOURCE, numbers).encode()) == WHOLE


class _Change(ast.NodeTransformer):
    """Changes the node with a number, of those that can be changed."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.count = 0

    def visit(self, node: ast.AST) -> Any:
        changed = self._changed(node)
        if changed is not None:
            self.count += 1
            if self.count - 1 == self.wanted:
                return ast.copy_location(changed, node)
        return self.generic_visit(node)

    @staticmethod
    def _changed(node: ast.AST) -> ast.AST | None:
        changed: ast.AST | None = None
        match node:
            case ast.Constant(value=int(value) | float(value)):
                changed = ast.Constant(value + 1)
            case ast.Name(id=name, ctx=context):
                changed = ast.Name(f"{name}_", context)
            case ast.Attribute(value=value, attr=name, ctx=context):
                changed = ast.Attribute(value, f"{name}_", context)
            case ast.BinOp(left=left, right=right):
                changed = ast.BinOp(left, ast.FloorDiv(), right)
            case ast.Compare(left=left, comparators=others):
                changed = ast.Compare(left, [ast.LtE()], others)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                changed = operand
            case ast.arg(arg=name):
                changed = ast.arg(f"{name}_")
            case ast.Return():
                changed = ast.Return(ast.Constant(None))
            case ast.Import(names=names):
                changed = ast.Import([*names, ast.alias("os")])
        return changed


CHANGES = _Change(-1)
CHANGES.visit(ast.parse(SOURCE))


@given(st.integers(0, CHANGES.count - 1))
def test_every_small_change_of_the_syntax_tree_counts(wanted: int) -> None:
    tree = ast.fix_missing_locations(_Change(wanted).visit(ast.parse(SOURCE)))
    changed = module_code(ast.unparse(tree).encode())
    assert changed.whole != WHOLE.whole
    assert set(changed.parts) == DEFINITIONS
    assert len([name for name in DEFINITIONS if changed.parts[name] != WHOLE.parts[name]]) == 1
    assert len(differences({"": WHOLE}, {"": changed})) == 1


def test_what_changed_is_named() -> None:
    changed = module_code(SOURCE.replace("** 2", "** 3").replace("SCALE = 3", "SCALE = 4").encode())
    assert differences({"": WHOLE}, {"": changed}) == ["`Mixer.build` changed", "statements of the module changed"]
    renamed = module_code(SOURCE.replace("def size", "def height").encode())
    assert differences({"": WHOLE}, {"": renamed}) == ["`Mixer.height` is new", "`Mixer.size` is gone"]
    assert differences({"": WHOLE}, {"": WHOLE, "beside": WHOLE}) == ["`beside` is now imported"]
    texts = b"def a(): f()\ndef b(): 1\n", b"def b(): 1\ndef a(): f()\n"
    first, second = map(module_code, texts)
    assert differences({"": first}, {"": second}) == ["the order of the module changed"]


@pytest.mark.parametrize("content", [b"def f(:", b"x = '\xff'", b"\x00", b""])
def test_what_is_not_python_counts_by_its_bytes(content: bytes) -> None:
    assert module_code(content) != module_code(content + b" 1")
    assert module_code(content).whole == hashlib.sha256(content).hexdigest()[:16] or not content, "stores hold it"


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_the_modules_beside_it_count_as_far_as_they_are_imported(tmp_path: Path) -> None:
    write(
        tmp_path,
        mine="import near, torch\nfrom parts.inner import f\nimport importlib\nimportlib.import_module('named')",
        near="def f():\n    import far",
        far="x = 1",
        named="x = 1",
        other="x = 1",
        parts__inner="from . import sibling\nfrom .. import nothing",
        parts__sibling="x = 1",
        parts__unused="x = 1",
    )
    (tmp_path / "parts" / "__init__.py").write_text("x = 1")
    before = read_modules(tmp_path / "mine.py")
    assert set(before) == {"", "near", "far", "named", "parts", "parts.inner", "parts.sibling"}
    write(tmp_path, other="x = 2", parts__unused="x = 2")
    assert read_modules(tmp_path / "mine.py") == before
    for name in ("near", "far", "named", "parts__inner", "parts__sibling"):
        path = tmp_path / f"{name.replace('__', '/')}.py"
        text = path.read_text()
        path.write_text(text + "\ny = 2")
        found = differences(before, read_modules(tmp_path / "mine.py"))
        assert found == [f"statements of `{name.replace('__', '.')}` changed"]
        path.write_text(text)


def test_in_a_package_its_modules_count_and_other_packages_do_not(tmp_path: Path) -> None:
    installed = tmp_path / "site-packages"
    write(
        installed,
        lab__kinds__mine="from ..maths import f\nimport lab.tables as t\nimport elsewhere\nfrom . import near",
        lab__kinds__near="x = 1",
        lab__maths="x = 1",
        lab__tables="x = 1",
        elsewhere="x = 1",
        alone="import elsewhere",
    )
    for folder in ("lab", "lab/kinds"):
        (installed / folder / "__init__.py").write_text("")
    found = read_modules(installed / "lab/kinds/mine.py", "lab.kinds")
    assert set(found) == {"", "lab", "lab.kinds", "lab.kinds.near", "lab.maths", "lab.tables"}
    assert set(read_modules(installed / "alone.py")) == {""}


CELL = """
BY = 2
def twice(x):
    return BY * x
class Kind:
    '''Typed in.'''
    def cost(self):
        return twice(3)
"""


def read_typed(source: str, kept: bool) -> dict[str, ModuleCode]:
    name = f"<{'cell' if kept else 'prompt'} {hash(source)}>"
    if kept:
        linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    made: dict[str, Any] = {"__name__": "typed_in"}
    exec(compile(source, name, "exec"), made)
    return read_definitions(made["Kind"])


# The last number of each is changed.
TYPED = {
    "list": "class Kind:\n  def f(self): return S\nS = [1]",
    "list that contains itself": "class Kind:\n  def f(self): return S\nS = []\nS.append(S)\nS.append(1)",
    "table": "class Kind:\n  def f(self): return S\nS = {'a': (2.0, {3})}",
    "default by name": "S = 1\nclass Kind:\n  def f(self, x=S): return x",
    "default": "class Kind:\n  def f(self, x=1): return x",
    "default by keyword": "class Kind:\n  def f(self, *, x=1): return x",
    "attribute": "class Kind:\n  a = 1",
    "attribute by name": "S = 1\nclass Kind:\n  a = S",
    "decorator": "def d(f): return lambda self: f(self) * 2\nclass Kind:\n  @d\n  def f(self): pass",
    "decorator that wraps": "import functools\ndef d(f):\n  @functools.wraps(f)\n  def g(self): return f(self) * 2\n"
    "  return g\nclass Kind:\n  @d\n  def f(self): pass",
    "argument of a decorator": "def d(k): return lambda f: lambda self: f(self) * k\nclass Kind:\n  @d(2)\n"
    "  def f(self): pass",
    "decorator of the class": "def d(c):\n  c.z = 2\n  return c\n@d\nclass Kind:\n  def f(self): return self.z",
    "closure": "def d(k): return lambda: k\nh = d(1)\nclass Kind:\n  def f(self): return h()",
    "class of an object": "class C:\n  def g(self): return 1\nc = C()\nclass Kind:\n  def f(self): return c.g()",
    "state of an object": "class C: pass\nc = C()\nclass Kind:\n  def f(self): return c.x\nc.x = 1",
    "class in it": "class Kind:\n  class M:\n    def g(self): return 1",
    "class as attribute": "class M:\n  def g(self): return 1\nclass Kind:\n  m = M",
    "base": "class B:\n  def f(self): return 1\nclass Kind(B): pass",
    "partial": "import functools\ndef h(a): return a * 2\np = functools.partial(h)\nclass Kind:\n"
    "  def f(self): return p()",
    "functions in a table": "def h(): return 2\nD = {'h': h}\nclass Kind:\n  def f(self): return D['h']()",
    "cached property": "import functools\nclass Kind:\n  @functools.cached_property\n  def f(self): return 1",
    "cached function": "import functools\n@functools.cache\ndef h(): return 1\nclass Kind:\n  def f(self): return h()",
}


@pytest.mark.parametrize("kept", [True, False], ids=["notebook", "prompt"])
@pytest.mark.parametrize("source", TYPED.values(), ids=TYPED)
def test_whatever_a_typed_class_refers_to_counts(source: str, kept: bool) -> None:
    before = read_typed(source, kept)
    assert read_typed(f"{source}\n", kept) == before
    changed = re.sub(r"\d(?=\D*$)", "7", source)
    assert differences(before, read_typed(changed, kept))


@pytest.mark.parametrize("line", ["from beside_it import h", "import beside_it", "", "from kit_beside.inner import h"])
def test_modules_of_the_working_folder_that_a_notebook_imports_count(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    use = "h()" if "from" in line else "beside_it.h()"
    source = f"{line}\nclass Kind:\n  def f(self):\n    {'pass' if line else 'import beside_it'}\n    return {use}"
    found = []
    for value in (1, 22):
        for module in ("beside_it", "kit_beside", "kit_beside.inner", "deeper"):
            sys.modules.pop(module, None)
        importlib.invalidate_caches()
        write(tmp_path, beside_it="from deeper import h", kit_beside__inner="from deeper import h")
        write(tmp_path, deeper=f"def h(): return {value}", unused=f"x = {value}")
        found.append(read_typed(source, kept=True))
    assert differences(*found) == ["`deeper.h` changed"]


def test_modules_of_a_package_that_a_notebook_imports_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    for value in (1, 22):
        for module in ("kit_within", "kit_within.inner", "kit_within.near"):
            sys.modules.pop(module, None)
        importlib.invalidate_caches()
        write(tmp_path, kit_within__inner="from .near import g\ndef h(): return g()")
        write(tmp_path, kit_within__near=f"def g(): return {value}", kit_within__unused=f"x = {value}")
        (tmp_path / "kit_within" / "__init__.py").touch()
        found.append(read_typed("from kit_within.inner import h\nclass Kind:\n  def f(self): return h()", kept=True))
    assert differences(*found) == ["`kit_within.near.g` changed"]


@pytest.mark.parametrize("kept", [True, False], ids=["notebook", "prompt"])
def test_code_without_a_file_is_that_of_its_cell_or_its_compiled_form(kept: bool) -> None:
    before = read_typed(CELL, kept)
    commented = CELL.replace("Typed in.", "Other words.").replace("(3)", "(3)  # why")
    assert read_typed(commented, kept) == before
    changes = {("BY = 2", "BY = 3"): "BY", ("BY * x", "BY + x"): "twice", ("twice(3)", "twice(4)"): "Kind"}
    for (old, new), name in changes.items():
        first, *further = differences(before, read_typed(CELL.replace(old, new), kept))
        assert first == f"`{name}` changed"
        assert further in ([], ["`Kind.cost` changed"])

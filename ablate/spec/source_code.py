"""The source of a user's modules as digests that comments, formatting and docstrings do not change.

A module counts with the modules beside it that it imports, directly or through others: those of its folder and, in a
package, those of the package. Imports are found in the source and never run. Installed packages do not count.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import linecache
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

_DIGITS = 16
"""Hexadecimal digits of a digest: 64 bits, of which two versions of one file never share all by chance."""
_NO_EFFECT = ("kind", "type_comment", "type_ignores")
"""Fields of syntax trees that do not change what code does: the prefix of u"" and comments on types."""
_LIBRARIES = ("site-packages", "dist-packages")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_CONSTANTS = (int, float, complex, str, bytes, bool, tuple, frozenset, type(None))


@dataclass(frozen=True, slots=True)
class ModuleCode:
    """The code of a module.

    Attributes:
        whole: Digest of all of it.
        parts: Name of a function, method or class to its digest; a class is that without its methods, and the empty
            name stands for all other statements.
    """

    whole: str
    parts: Mapping[str, str]


def module_code(content: bytes) -> ModuleCode:
    """The code of a module with this source; of source that is not Python, the digest of its bytes."""
    try:
        return _code_of(ast.parse(content).body)
    except (SyntaxError, ValueError):
        return ModuleCode(_digest(content), {})


def read_modules(file: Path, package: str = "") -> dict[str, ModuleCode]:
    """The code of a file, under the empty name, and of the modules beside it that it imports, under theirs.

    Args:
        file: The file of the module.
        package: Name of the package that it was imported in, to which its relative imports refer; empty if in none.
    """
    roots = [] if file.parent.name in _LIBRARIES else [(file.parent, "")]
    above = file.parent
    while (above / "__init__.py").is_file():
        above = above.parent
    if above != file.parent:
        top = file.relative_to(above).parts[0]
        roots.append((above, top))
    waiting, modules, read = [("", package, file)], dict[str, ModuleCode](), {file.resolve()}
    while waiting:
        name, inside, path = waiting.pop()
        with suppress(OSError):
            content = path.read_bytes()
            modules[name] = module_code(content)
            for imported in _imports(content, inside):
                for found, where in _files(imported, roots):
                    if where.resolve() not in read:
                        read.add(where.resolve())
                        is_package = where.name == "__init__.py"
                        waiting.append((found, found if is_package else found.rpartition(".")[0], where))
    return dict(sorted(modules.items()))


def read_definitions(kind: type) -> dict[str, ModuleCode]:
    """The code of a class that no file defines: typed at a prompt, in a notebook, or made by `exec`.

    It is made of the definition of the class and of what it refers to in its module: classes, functions, numbers and
    texts. Their source is that of the cell; where none is kept, their compiled code stands for it, so that another
    version of Python counts as another code.
    """
    parts: dict[str, str] = {}
    waiting: list[Any] = [kind]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        functions = [*_functions(one)]
        node = _definition(one, functions)
        written = [function.__code__ for function in functions]
        compiled = [_compiled(code) for code in written] if node is None else []
        fields = sorted((name, repr(text)) for name, text in vars(one).get("__annotations__", {}).items())
        parts[one.__qualname__] = _digest(_normal(node) if node is not None else repr((fields, compiled)))
        if isinstance(one, type):
            waiting += [base for base in one.__mro__[1:] if base.__module__ == kind.__module__]
        for function in functions:
            for name in _names(function.__code__):
                value = function.__globals__.get(name)
                if isinstance(value, (type, FunctionType)) and value.__module__ == kind.__module__:
                    waiting.append(value)
                elif name in function.__globals__ and isinstance(value, _CONSTANTS) and not name.startswith("__"):
                    parts[name] = _digest(repr(value))
    return {"": ModuleCode(_digest(repr(sorted(parts.items()))), parts)}


def differences(before: Mapping[str, ModuleCode], after: Mapping[str, ModuleCode]) -> list[str]:
    """What differs between two versions of a module and those beside it, as short sentences."""
    found = []
    for module in sorted({*before, *after}):
        if module not in before or module not in after:
            found.append(f"`{module}` is {'no longer' if module in before else 'now'} imported")
            continue
        old, new = before[module], after[module]
        if old.whole == new.whole:
            continue
        names = sorted(name for name in {*old.parts, *new.parts} if old.parts.get(name) != new.parts.get(name))
        of_module = f"{module}." if module else ""
        for name in filter(None, names):
            how = "is new" if name not in old.parts else "is gone" if name not in new.parts else "changed"
            found.append(f"`{of_module}{name}` {how}")
        if "" in names or not names:
            place = f"of `{module}`" if module else "of the module"
            found.append(f"statements {place} changed" if names else f"the order {place} changed")
    return found


def _code_of(body: list[ast.stmt]) -> ModuleCode:
    parts: dict[str, list[str]] = defaultdict(list)
    for statement in _effective(body):
        if isinstance(statement, _FUNCTIONS):
            parts[statement.name].append(_normal(statement))
        elif isinstance(statement, ast.ClassDef):
            rest = [one for one in statement.body if not isinstance(one, _FUNCTIONS)]
            for method in statement.body:
                if isinstance(method, _FUNCTIONS):
                    parts[f"{statement.name}.{method.name}"].append(_normal(method))
            whole = {name: getattr(statement, name) for name in statement._fields}
            parts[statement.name].append(_normal(ast.ClassDef(**{**whole, "body": rest})))
        else:
            parts[""].append(_normal(statement))
    whole_text = _normal(ast.Module(body=body, type_ignores=[]))
    return ModuleCode(_digest(whole_text), {name: _digest("\n".join(texts)) for name, texts in parts.items()})


def _effective(body: Iterable[ast.stmt]) -> list[ast.stmt]:
    """The statements that do something: no docstrings, no other bare texts, no `pass`."""
    return [
        one
        for one in body
        if not isinstance(one, ast.Pass)
        and not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str))
    ]


class _Word(str):
    """Punctuation of a normal form."""

    __slots__ = ()


def _normal(tree: ast.AST) -> str:
    """A syntax tree as text, equal in all versions of Python: without places, empty fields and what has no effect."""
    words: list[str] = []
    waiting: list[Any] = [tree]
    while waiting:  # not recursive: generated code may be nested deeply
        item = waiting.pop()
        if isinstance(item, _Word):
            words.append(item)
        elif isinstance(item, ast.AST):
            words.append(f"({type(item).__name__}")
            inside: list[Any] = []
            for name, value in ast.iter_fields(item):
                if name not in _NO_EFFECT and value is not None and value != []:
                    inside += [_Word(f" {name}="), value]
            waiting += [_Word(")"), *reversed(inside)]
        elif isinstance(item, list):
            kept = _effective(item) if item and isinstance(item[0], ast.stmt) else item
            words.append("[")
            waiting += [_Word("]"), *reversed(kept)]
        else:
            words.append(f" {item!r}")
    return "".join(words)


def _imports(content: bytes, package: str) -> Iterator[str]:
    """The names of the modules that a source may import, also those that are written as texts."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                base = ".".join([*filter(None, above), *([module] if module else [])])
                yield base
                yield from (f"{base}.{alias.name}".lstrip(".") for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield f"{package}{name}" if name.startswith(".") else name


def _files(name: str, roots: Iterable[tuple[Path, str]]) -> Iterator[tuple[str, Path]]:
    """The modules that importing a name runs, of those below the roots: packages and the module itself."""
    steps = name.split(".")
    for root, top in roots:
        if top and steps[0] != top:
            continue
        folder = root
        for count, step in enumerate(steps, 1):
            so_far = ".".join(steps[:count])
            if not step.isidentifier():
                break
            candidates = [folder / f"{step}{suffix}" for suffix in (".py", *EXTENSION_SUFFIXES)]
            for path in (folder / step / "__init__.py", *candidates):
                if path.is_file():
                    yield so_far, path
                    break
            folder /= step


def _functions(one: Any) -> Iterator[FunctionType]:
    """The functions that a function or class is made of."""
    for value in vars(one).values() if isinstance(one, type) else (one,):
        for inner in (value, *(getattr(value, name, None) for name in ("__func__", "fget", "fset"))):
            function = inspect.unwrap(inner) if callable(inner) else inner
            if isinstance(function, FunctionType) and function.__module__ == one.__module__:
                yield function


def _definition(one: Any, functions: Iterable[FunctionType]) -> ast.AST | None:
    """The syntax tree of a definition, from the lines that Python keeps of a cell; None if there are none."""
    for function in functions:
        lines = linecache.getlines(function.__code__.co_filename)
        with suppress(SyntaxError, ValueError):
            tree = ast.parse(textwrap.dedent("".join(lines)))
            for node in ast.walk(tree):
                if isinstance(node, (ast.ClassDef, *_FUNCTIONS)) and node.name == one.__name__:
                    return node
    with suppress(OSError, TypeError, SyntaxError, ValueError):
        return ast.parse(textwrap.dedent(inspect.getsource(one)))
    return None


def _compiled(code: CodeType) -> tuple[Any, ...]:
    """What a function does, from its compiled form, without its lines and its docstring."""
    named = not code.co_name.startswith("<")  # a lambda has no docstring
    written = code.co_consts[1:] if named and isinstance(next(iter(code.co_consts), None), str) else code.co_consts
    constants = [_compiled(one) if isinstance(one, CodeType) else repr(one) for one in written if one is not None]
    return code.co_code.hex(), code.co_names, code.co_varnames, tuple(constants)


def _names(code: CodeType) -> Iterator[str]:
    """The global names that a function and those inside it use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _digest(text: str | bytes) -> str:
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return hashlib.sha256(content).hexdigest()[:_DIGITS]

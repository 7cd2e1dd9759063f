"""The source of a user's modules as digests that comments, formatting and docstrings do not change.

A module counts with the modules beside it that it imports, directly or through others: those of its folder and, in a
package, those of the package. Imports are found in the source and never run. Installed packages do not count.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import linecache
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from ablate.locations import real_path
from ablate.spec.base import is_users

_DIGITS = 16
"""Hexadecimal digits of a digest: 64 bits, of which two versions of one file never share all by chance."""
_NO_EFFECT = ("kind", "type_comment", "type_ignores")
"""Fields of syntax trees that do not change what code does: the prefix of u"" and comments on types."""
_LARGE = 1 << 24
"""Bytes from which on a file is data."""
_HAVE_COMMENTS = ("", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".sh")
"""Ends of the names of files in which `#` begins a comment."""
_LIBRARIES = ("site-packages", "dist-packages")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_WRAPPED: Mapping[type, tuple[str, ...]] = {
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    MethodType: ("__func__", "__self__"),
    property: ("fget", "fset", "fdel"),
    functools.cached_property: ("func",),
    functools.partial: ("func", "args", "keywords"),
    type(functools.cache(len)): ("__wrapped__",),
}
"""Types of what holds functions to the attributes that do."""


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


def file_code(file: Path) -> ModuleCode:
    """The code of a file that is not a module of Python: of what reads as Python, but for data that it would lose.

    A line of text in quotation marks would be a docstring there, and a heading of Markdown a comment.
    """
    if file.stat().st_size > _LARGE:  # data, which need not be in memory
        with file.open("rb") as opened:
            return ModuleCode(hashlib.file_digest(opened, "sha256").hexdigest()[:_DIGITS], {})
    content = file.read_bytes()
    with suppress(SyntaxError, ValueError):
        body = ast.parse(content).body
        if len(_effective(body)) < len(body) or (b"#" in content and file.suffix not in _HAVE_COMMENTS):
            return ModuleCode(_digest(content), {})
    return module_code(content)


def read_modules(file: Path, package: str = "", folders: Iterable[Path] = ()) -> dict[str, ModuleCode]:
    """The code of a file, under the empty name, and of the modules beside it that it imports, under theirs.

    Args:
        package: Name of the package that it was imported in, to which its relative imports refer; empty if in none.
        folders: Where else the user's modules are found.
    """
    sources = read_sources(file, package, folders)
    return dict(sorted((name, module_code(content)) for name, (_, content) in sources.items()))


def read_sources(file: Path, package: str = "", folders: Iterable[Path] = ()) -> dict[str, tuple[Path, bytes]]:
    """The path and the content of each file whose code `read_modules` gives, under the same names."""
    roots = [(folder, "") for folder in (file.parent, *folders) if folder.name not in _LIBRARIES]
    above = file.parent
    while (above / "__init__.py").is_file():
        above = above.parent
    if above != file.parent:
        top = file.relative_to(above).parts[0]
        roots.append((above, top))
    waiting, sources, read = [("", package, file)], dict[str, tuple[Path, bytes]](), {real_path(file)}
    while waiting:
        name, inside, path = waiting.pop()
        with suppress(OSError):
            content = path.read_bytes()
            sources[name] = path, content
            for imported in _imports(content, inside):
                for found, where in _files(imported, roots):
                    if real_path(where) not in read:
                        read.add(real_path(where))
                        is_package = where.name == "__init__.py"
                        waiting.append((found, found if is_package else found.rpartition(".")[0], where))
    return sources


def read_definitions(kind: type) -> dict[str, ModuleCode]:
    """The code of a class that no file defines: typed at a prompt, in a notebook, or made by `exec`.

    It is made of the definition of the class and of all that it refers to: bases, decorators, functions, classes,
    objects and values of its module, and the user's modules in the working folder. The source of a definition is that
    of its cell; where none is kept, its compiled code and its values stand for it, so that another version of Python
    counts as another code.
    """
    reader = _DefinitionReader(kind)
    return {"": ModuleCode(_digest(repr(sorted(reader.parts.items()))), reader.parts), **reader.beside}


class _DefinitionReader:
    """Follows the names that a class uses.

    Attributes:
        parts: Name of a definition or value of its module to the digest.
        beside: Name of a module in the working folder to its code.
    """

    def __init__(self, kind: type) -> None:
        self.parts: dict[str, str] = {}
        self.beside: dict[str, ModuleCode] = {}
        self._home = kind.__module__
        self._scope: dict[str, Any] = dict(vars(sys.modules[self._home])) if self._home in sys.modules else {}
        self._waiting: list[Any] = [kind]
        self._values: dict[str, str] = {}
        seen: dict[int, Any] = {}
        while self._waiting:
            one = self._waiting.pop()
            if id(one) not in seen:
                seen[id(one)] = one
                self._read(one)
        for name, value in self._values.items():  # a decorator may have put an object in the place of a function
            self.parts[name] = _digest(value + self.parts[name]) if name in self.parts else value

    def _read(self, one: Any) -> None:
        functions = [*_functions(one)]
        for function in functions:
            self._scope |= function.__globals__
        node = _definition(one, functions)
        names = {name for function in functions for name in _names(function.__code__)}
        fields = sorted((name, repr(text)) for name, text in vars(one).get("__annotations__", {}).items())
        if node is not None:
            names |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        written = _normal(node) if node is not None else fields, [_describe_code(of.__code__) for of in functions]
        held = [self._text(value) for value in _held(one, with_values=node is None)]
        self.parts[one.__qualname__] = _digest(repr((written if node is None else written[0], held)))
        if isinstance(one, type):
            self._waiting += [base for base in one.__mro__[1:] if base.__module__ == self._home]
        for name in sorted(names):
            if name not in self._scope:
                for found, path in _files(name, [(Path.cwd(), "")]):
                    self._add_beside(found, path)
            elif not name.startswith("__"):
                value = self._scope[name]
                text = self._text(value)
                if text and not isinstance(value, (type, FunctionType)):
                    self._values[name] = _digest(text)

    def _text(self, value: Any, inside: tuple[int, ...] = ()) -> str:
        """A value as text; classes and functions in it are read later. Empty for what is not the user's."""
        if id(value) in inside:
            return "..."
        texts = functools.partial(self._text, inside=(*inside, id(value)))
        match value:
            case int() | float() | complex() | str() | bytes() | None:
                return repr(value)
            case ModuleType() | type() | FunctionType():
                return self._name(value)
            case dict():
                inner = [f"{texts(key)}: {texts(one)}" for key, one in value.items()]
            case set() | frozenset():
                inner = sorted(map(texts, value))
            case list() | tuple():
                inner = [*map(texts, value)]
            case _:
                held = [getattr(value, name) for name in _WRAPPED.get(type(value), ())]
                if type(value).__module__ == self._home:
                    held += [type(value), *getattr(value, "__dict__", {}).items()]
                inner = [*map(texts, held)]
        return f"{type(value).__qualname__}({', '.join(inner)})"

    def _name(self, value: Any) -> str:
        """The name of a class, function or module, which is read later; empty if it is not the user's."""
        module = value.__name__ if isinstance(value, ModuleType) else value.__module__
        if module == self._home and not isinstance(value, ModuleType):
            self._waiting.append(value)
            return str(value.__qualname__)
        path = Path(getattr(sys.modules.get(module), "__file__", None) or "")
        if not is_users(module) or Path.cwd() not in path.parents or {*_LIBRARIES} & {*path.parts}:
            return ""
        self._add_beside(module, path)
        return str(module)

    def _add_beside(self, module: str, path: Path) -> None:
        if module not in self.beside:
            found = read_modules(path, module if path.name == "__init__.py" else module.rpartition(".")[0])
            self.beside |= {name or module: code for name, code in found.items()}


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
    """The functions that a function or class is made of, and those that they wrap."""
    for value in vars(one).values() if isinstance(one, type) else (one,):
        for inner in (value, *(getattr(value, name) for name in _WRAPPED.get(type(value), ()))):
            while inner is not None:
                if isinstance(inner, FunctionType) and inner.__module__ == one.__module__:
                    yield inner
                inner = getattr(inner, "__wrapped__", None) if callable(inner) else None


def _held(one: Any, *, with_values: bool) -> Iterator[Any]:
    """What definitions hold that their own source may not tell: closures, and with values defaults and attributes."""
    for function in _functions(one):
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # it is not filled yet
                yield cell.cell_contents
        if with_values:
            yield from (function.__defaults__, function.__kwdefaults__)
    if isinstance(one, type) and with_values:
        yield {name: value for name, value in vars(one).items() if not name.startswith("_")}
        yield {name: field.default for name, field in vars(one).get("__pydantic_fields__", {}).items()}


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


def _describe_code(code: CodeType) -> tuple[Any, ...]:
    """What a function does, from its compiled form, without its lines and its docstring."""
    named = not code.co_name.startswith("<")  # a lambda has no docstring
    written = code.co_consts[1:] if named and isinstance(next(iter(code.co_consts), None), str) else code.co_consts
    constants = [_describe_code(one) if isinstance(one, CodeType) else repr(one) for one in written if one is not None]
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

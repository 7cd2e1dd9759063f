"""`Spec`: a frozen pydantic value with a canonical form and a content hash. `Kinded`: a member of a family of specs.

The canonical form is JSON without the fields at their default, except `kind`. So explicit defaults, key order, and ints
instead of floats make no difference, and a new field with a neutral default does not change existing hashes. Therefore
never change a default in a released spec: that would silently change the hash of every stored variant.
"""

from __future__ import annotations

import ast
import difflib
import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import itertools
import json
import math
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType, MemberDescriptorType, UnionType
from typing import Annotated, Any, ClassVar, Literal, LiteralString, Protocol, Self, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from ablate.errors import PluginError

EXACT = 2**53
"""Floats below this represent all integers exactly."""
LARGEST = 2**31 - 1
"""Bound on the absolute value of all integers in specs. Fields that control sizes or loops have tighter bounds."""


LARGEST_FLOAT = 1e30
"""The same for all other numbers: their squares and fourth powers are finite."""
SMALLEST = 1e-30
"""The smallest margin: what is divided by it is finite."""
Margin = Annotated[float, Field(ge=SMALLEST)]
"""A difference that matters."""
_BOUNDS: dict[Any, float] = {"int": LARGEST, "float": LARGEST_FLOAT}


def _bound_numbers(schema: Any) -> None:
    """Add the default bounds to all numbers of a core schema, including nested specs, that do not state their own."""
    for part in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(part, (dict, list, tuple)):
            _bound_numbers(part)
    kind = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(kind, str) and (bound := _BOUNDS.get(kind)) is not None:
        if not {"le", "lt"} & schema.keys():
            schema["le"] = bound
        if not {"ge", "gt"} & schema.keys():
            schema["ge"] = -bound


class DeclaresSources(Protocol):
    """What names files that give the numbers of a trial."""

    def source_files(self, root: Path) -> dict[str, Path]:
        """These files by their names in messages."""

    def code(self, root: Path) -> dict[str, Any]:
        """Their digests by label, as `ablate.spec.code.Code` holds those of kinds."""


class Spec(BaseModel):
    """A frozen value that refuses unknown keys; every field has a description."""

    __slots__ = ("_form", "_graph", "_text")  # cached canonical form, structure and JSON; specs share nested specs

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    value_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields that affect only values, such as initial values and learning rates, but not the graph."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _bound_numbers(schema)
        return schema

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """With the text below each field as its description.

        Pydantic's `use_attribute_docstrings` reads the source of every class whenever it is imported, which takes as
        long as all else that makes the class.
        """
        plain = handler(schema)
        fields = handler.resolve_ref_schema(plain).get("properties", {})
        for name, text in _texts(cls).items():
            if name in fields:
                fields[name] = {**fields[name], "description": fields[name].get("description", text)}
        return plain

    @model_validator(mode="before")
    @classmethod
    def _know_keys_and_numbers(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            numbers = _numbers(cls)
            if any(key not in numbers or (numbers[key] and isinstance(value[key], bool)) for key in value):
                errors = [*_unknown_keys(cls, value), *_booleans_for_numbers(cls, value)]
                raise ValidationError.from_exception_data("spec", errors)
        return value

    def canonical(self) -> Any:
        """The canonical form: JSON without defaults, except `kind`. Equal for equal specs."""
        return {name: _plain(value, _cached_canonical) for name, value in self._written()}

    def structure(self) -> Any:
        """JSON without the fields in `value_fields`. Equal for specs with equal graphs."""
        names = (name for name in type(self).model_fields if name not in self.value_fields)
        return {name: _plain(getattr(self, name), cached_structure) for name in names}

    def editable(self) -> dict[str, Any]:
        """A mapping in which paths can be assigned and which can be validated again; nested specs are not converted.

        As `canonical`, but members of families are included even at their default, so that paths into them find the
        `kind`. `assign` converts the nested specs on its path in the same way.
        """
        return {name: _plain(value, lambda spec: spec) for name, value in self._written(families=True)}

    def _written(self, *, families: bool = False) -> Iterator[tuple[str, Any]]:
        """The fields that are not at their default, and `kind`; with `families` also all members of families."""
        given, values = self.model_fields_set, self.__dict__
        for name, default, of_family in _fields(type(self)):
            if name == "kind" or (families and of_family):
                yield name, values[name]
            elif name in given:
                value = values[name]
                if value is not default and value != default:
                    yield name, value

    def specs_beside(self) -> Iterable[Spec]:
        """The specs that it makes of settings or texts in its fields, beside those that are fields."""
        return ()

    def declared_sources(self) -> DeclaresSources | None:
        """What names files outside ablate that give the numbers of a trial; None if nothing does."""
        return None

    def canonical_json(self) -> str:
        """`canonical` as one line of JSON with sorted keys."""
        text: str = _cached(self, _TEXT, lambda: _in_one_line(self.canonical()))
        return text

    def content_hash(self) -> str:
        """SHA-256 of the canonical JSON, as 64 hexadecimal digits."""
        return _digest(self.canonical_json())


_REQUIRED = object()
"""Stands for the default of a field that has none."""


@functools.cache
def _fields(spec: type[Spec]) -> list[tuple[str, Any, bool]]:
    """Name and default of each field, and whether the default is a member of a family."""
    # Cached because pydantic copies the default at every call, and every hash needs all defaults.
    defaults = {
        name: _REQUIRED if field.is_required() else field.get_default(call_default_factory=True)
        for name, field in spec.model_fields.items()
    }
    return [(name, default, isinstance(default, Kinded)) for name, default in defaults.items()]


@functools.cache
def _numbers(spec: type[Spec]) -> dict[str, bool]:
    """Whether each field takes numbers, for which pydantic would accept true as 1."""
    return {name: _is_number(field.annotation) for name, field in spec.model_fields.items()}


def _unknown_keys(spec: type[Spec], value: Mapping[Any, Any]) -> Iterator[InitErrorDetails]:
    # Pydantic would also reject unknown keys, but without suggesting a similar one.
    known = spec.model_fields
    for key in (str(key) for key in value if key not in known):
        near = difflib.get_close_matches(key, spec.model_fields, n=1)
        remedy = f"Did you mean `{near[0]}`?" if near else f"Known keys: {', '.join(spec.model_fields)}."
        error = PydanticCustomError("unknown_key", "there is no key `{key}` here", {"key": key, "remedy": remedy})
        yield InitErrorDetails(type=error, loc=(key,), input=value.get(key))


def _booleans_for_numbers(spec: type[Spec], value: Mapping[Any, Any]) -> Iterator[InitErrorDetails]:
    # Pydantic accepts true as 1.
    for name, item in value.items():
        if isinstance(item, bool) and name in spec.model_fields and _is_number(spec.model_fields[name].annotation):
            error = PydanticCustomError("boolean", "a number is expected here")
            yield InitErrorDetails(type=error, loc=(name,), input=item)


def _texts(cls: type) -> dict[str, str]:
    """The text below each field of a class, in its source or in that of a class from which it has the field."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        own = inspect.get_annotations(base)
        texts = _texts_of_module(base.__module__).get(base.__qualname__, {}) if issubclass(base, Spec) else {}
        found = {name: text for name, text in found.items() if name not in own} | texts
    return found


@functools.cache
def _texts_of_module(name: str) -> dict[str, dict[str, str]]:
    """The texts below the fields of each class of a module, by the qualified name of the class."""
    try:
        waiting: list[tuple[str, ast.AST]] = [("", ast.parse(inspect.getsource(sys.modules[name])))]
    except (KeyError, OSError, TypeError, SyntaxError):  # typed at a prompt, or made without a file
        return {}
    found: dict[str, dict[str, str]] = {}
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, ast.ClassDef):
            found[path.removesuffix(".")] = {
                field.target.id: inspect.cleandoc(text.value.value)
                for field, text in itertools.pairwise(node.body)
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
                if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
                if isinstance(text.value.value, str)
            }
        for child in ast.iter_child_nodes(node):
            inner = path
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                inner += f"{child.name}." if isinstance(child, ast.ClassDef) else f"{child.name}.<locals>."
            waiting.append((inner, child))
    return found


def _is_number(annotation: Any) -> bool:
    options = get_args(annotation)
    if get_origin(annotation) is Literal:
        return all(type(option) is int for option in options)
    if get_origin(annotation) is Annotated:
        return _is_number(options[0])
    if get_origin(annotation) in (Union, UnionType):
        return bool not in options and any(map(_is_number, options))
    return annotation in (int, float)


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is at most `most`, in O(√number)."""
    small = [divisor for divisor in range(1, min(most, math.isqrt(number)) + 1) if number % divisor == 0]
    return max([*small, *(number // divisor for divisor in small if number // divisor <= most)])


def content_hash(plain: Any) -> str:
    """SHA-256 of JSON data as 64 hexadecimal digits, independent of key order."""
    return _digest(_in_one_line(plain))


_in_one_line = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


_ATOMIC = frozenset({str, int, bool, type(None)})  # checked first for speed


def _plain(value: Any, form: Callable[[Spec], Any]) -> Any:
    if type(value) in _ATOMIC:
        return value
    if isinstance(value, float):
        # As in RFC 8785, the form of a number depends only on its value: 1.0 is written as 1, and -0.0 as 0. Other
        # floats have a unique shortest decimal form on every platform.
        return int(value) if value.is_integer() and abs(value) < EXACT else value
    if isinstance(value, Spec):
        return form(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, form) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, form) for item in value]
    return value


_FORM, _GRAPH, _TEXT = (Spec.__dict__[slot] for slot in ("_form", "_graph", "_text"))
"""The slots. Asked by name, pydantic looks for an empty one among private attributes too, which takes longer."""


def _cached_canonical(spec: Spec) -> Any:
    return _cached(spec, _FORM, spec.canonical)


def cached_structure(spec: Spec) -> Any:
    """`structure` of a spec, made once; what it gives must not be changed."""
    return _cached(spec, _GRAPH, spec.structure)


def _cached(spec: Spec, slot: MemberDescriptorType, make: Callable[[], Any]) -> Any:
    """The value of a slot of a spec, which `make` gives once."""
    try:
        return slot.__get__(spec)
    except AttributeError:
        made = make()
        slot.__set__(spec, made)
        return made


def refusal(
    path: tuple[str | int, ...], value: Any, rule: str, remedy: str, *, kind: LiteralString = "impossible"
) -> ValidationError:
    """The error for an invalid value or combination, to be raised by a validator.

    Args:
        path: Field path relative to the spec that raises it.
        remedy: How to correct it, as an instruction.
        kind: `impossible` for incompatible values, which another switch may make compatible; otherwise another word.
    """
    error = PydanticCustomError(kind, "{rule}", {"rule": rule, "remedy": remedy})
    return ValidationError.from_exception_data("spec", [InitErrorDetails(type=error, loc=path, input=value)])


def below(prefix: tuple[str | int, ...], error: ValidationError) -> ValidationError:
    """The same error with `prefix` before every path."""
    details: list[InitErrorDetails] = []
    for line in error.errors():
        kind = PydanticCustomError(line["type"], "{text}", {**line.get("ctx", {}), "text": line["msg"]})
        details.append(InitErrorDetails(type=kind, loc=(*prefix, *line["loc"]), input=line["input"]))
    return ValidationError.from_exception_data("spec", details)


def _load(entry: importlib.metadata.EntryPoint) -> None:
    try:
        entry.load()
    except Exception as error:
        package = entry.dist.name if entry.dist else entry.module
        raise PluginError(
            f"loading its kind raised {type(error).__name__}: {error}",
            where=f"installed package {package}, entry point {entry.group}: {entry.name}",
            remedy="Fix that package, or uninstall it.",
        ) from error


class Family:
    """A family of kinds (mixers, tasks, designs ...), discovered by importing the modules of a package.

    Args:
        noun: Name of a member in messages.
        package: The package whose modules define kinds; imported at the first lookup.
        entry_points: Entry point group through which installed packages add kinds.
        other: Returns a remedy for a name that is not a kind but the name of something else; otherwise None.
    """

    def __init__(
        self,
        noun: str,
        package: str | None = None,
        entry_points: str | None = None,
        other: Callable[[str], str | None] = lambda name: None,
    ) -> None:
        self.noun = noun
        self.package = package
        self.entry_points = entry_points
        self._other = other
        self._members: dict[str, type[Kinded]] = {}
        self._discovered = package is None

    def add(self, member: type[Kinded]) -> None:
        """Register a kind. A later definition in the same module replaces it; two modules may not define it."""
        if not member.__module__.startswith(f"{self.package}."):
            self.members()  # load the package first, so that a duplicate is attributed to the other module
        known = self._members.get(member.kind_name())
        if known is not None and known.__module__ != member.__module__:
            raise TypeError(
                f"the {self.noun} kind {member.kind_name()!r} is defined in {known.__module__} and {member.__module__}"
            )
        self._members[member.kind_name()] = member

    def members(self) -> dict[str, type[Kinded]]:
        """Spec classes by kind, sorted by kind."""
        if not self._discovered:
            self._discovered = True
            assert self.package is not None
            package = importlib.import_module(self.package)
            for module in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{self.package}.{module.name}")
            if self.entry_points is not None:
                for entry in importlib.metadata.entry_points(group=self.entry_points):
                    _load(entry)
        return dict(sorted(self._members.items()))

    def _import_own(self, kind: str) -> None:
        """Import the module of the package whose text defines this kind, if one does."""
        package = importlib.import_module(str(self.package))
        for file in (file for folder in package.__path__ for file in Path(folder).glob("*.py")):
            if f'kind: Literal["{kind}"]' in file.read_text(encoding="utf-8"):
                importlib.import_module(f"{self.package}.{file.stem}")

    def defined_in(self, module: str) -> dict[str, type[Kinded]]:
        """The registered kinds of a module, without importing anything."""
        return {kind: member for kind, member in self._members.items() if member.__module__ == module}

    def member(self, kind: object) -> type[Kinded]:
        """The spec class of a kind.

        The module that defines it is imported alone: a space names few of all kinds, and importing the others takes
        longer than reading it.

        Raises:
            PydanticCustomError: There is no such kind; the message suggests a similar one.
        """
        if isinstance(kind, str):
            if not self._discovered and kind not in self._members:
                self._import_own(kind)
            if kind in self._members or kind in self.members():
                return self._members[kind]
        members = self.members()
        near = difflib.get_close_matches(str(kind), members, n=1)
        hint = f"Did you mean `{near[0]}`?" if near else f"Known kinds: {', '.join(members)}."
        if self.entry_points is not None:
            hint += " One of your own needs its file: `plugins: [FILE.py]` in the space, or `--plugin FILE.py`."
        remedy = self._other(str(kind)) or hint
        raise PydanticCustomError(
            "unknown_kind",
            "there is no {noun} kind `{kind}`",
            {"noun": self.noun, "kind": str(kind), "remedy": remedy},
        )


class Kinded(Spec):
    """A member of a family. An abstract subclass sets `family`; a final subclass adds `kind: Literal[...]`."""

    family: ClassVar[Family]
    default_kind: ClassVar[str | None] = None
    """The kind of a mapping without `kind`; None if `kind` is required."""
    example: ClassVar[Mapping[str, Any]] = {}
    """Values of the fields that have no default, with which `ablate check-kind` and our tests try a kind."""
    code_revision: ClassVar[int] = 1
    """Revision of the code of a kind of ours; raised when that changes golden losses or gradients (`spec/code.py`)."""
    identified: ClassVar[dict[type[Kinded], tuple[str, ...]]] = {}
    """The kinds whose code is part of the keys of trials (users' kinds, and ours beyond their first revision), to the
    modules that ran when the class was made: its own, and that of a factory's caller."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "kind" in cls.model_fields:
            cls.family.add(cls)
        if cls.code_revision > 1 or is_users(cls.__module__):
            Kinded.identified[cls] = tuple(dict.fromkeys(_running_modules()))

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        plain = super().__get_pydantic_json_schema__(schema, handler)
        body = handler.resolve_ref_schema(plain)
        if "kind" in body.get("properties", {}):  # `kind` has a default in Python but is required in a file
            body["properties"]["kind"].setdefault("description", (cls.__doc__ or "").partition("\n")[0])
            fields = [name for name in body.get("required", ()) if name != "kind"]
            body["required"] = fields if cls.kind_name() == cls.default_kind else ["kind", *fields]
        return plain

    def settings_as_parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """The settings that differ from their defaults as rows of (slot, label), for drawings."""
        plain = self.canonical()
        return tuple(((name, f"{name.replace('_', ' ')}: {plain[name]}"),) for name in plain if name != "kind")

    @classmethod
    def kind_name(cls) -> str:
        """The value of `kind` for this class."""
        kind: str = cls.model_fields["kind"].default
        return kind

    @classmethod
    def facts(cls) -> dict[str, str | bool]:
        """Facts about this kind that a list of kinds shows besides its description."""
        return {}

    @classmethod
    def default(cls) -> Self:
        """The default kind of the family with all fields at their defaults."""
        return _default(cls)  # type: ignore[return-value]

    @classmethod
    def parse(cls, value: object) -> Self:
        """Validate a member of the family from JSON data: a mapping with `kind`, or a bare kind name.

        Raises:
            ValidationError: The data is not a valid member.
        """
        if isinstance(value, cls):
            return value
        plain = {"kind": value} if isinstance(value, str) else value
        noun = cls.family.noun
        if not isinstance(plain, Mapping):
            raise PydanticCustomError(
                "not_a_kind",
                "a {noun} is a mapping with `kind`, or the bare name of a kind",
                {"noun": noun, "remedy": f"Known kinds: {', '.join(cls.family.members())}."},
            )
        if "kind" not in plain and cls.default_kind is not None:
            plain = {"kind": cls.default_kind, **plain}
        if "kind" not in plain:
            raise PydanticCustomError(
                "missing_kind",
                "this {noun} has no `kind`",
                {"noun": noun, "remedy": f"Add `kind:` with one of {', '.join(cls.family.members())}."},
            )
        try:
            member = cls.family.member(plain["kind"])
        except PydanticCustomError as error:
            loc = () if isinstance(value, str) else ("kind",)
            details = InitErrorDetails(type=error, loc=loc, input=plain["kind"])
            raise ValidationError.from_exception_data("spec", [details]) from None
        return member.model_validate(plain)  # type: ignore[return-value]


_NOT_OF_USERS = frozenset({"ablate", "pydantic", "IPython", "_pytest", *sys.stdlib_module_names} - {"__main__"})
"""Packages that call the code of users, or define what it inherits from."""


def is_users(module: str) -> bool:
    """Whether a module is a user's, by its name: neither ours nor one of Python's."""
    return module.partition(".")[0] not in _NOT_OF_USERS


def _running_modules() -> Iterator[str]:
    """The users' modules on the stack, from the innermost to the one that is being imported or typed."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_globals.get("__name__", "")):
        frame = frame.f_back  # ours and pydantic's, which make the class
    while frame is not None and is_users(frame.f_globals.get("__name__", "")):
        yield frame.f_globals["__name__"]
        if frame.f_code.co_name == "<module>":
            return
        frame = frame.f_back


@functools.cache
def _default(base: type[Kinded]) -> Kinded:
    return base.parse(base.default_kind)


class PublishedKind(Kinded):
    """A kind with a source, which lists of kinds name."""

    source: ClassVar[str]
    """Paper and equation, or library."""

    @classmethod
    def facts(cls) -> dict[str, str | bool]:
        """The source."""
        return {"source": cls.source}

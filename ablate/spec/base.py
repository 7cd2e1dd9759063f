"""`Spec`: a frozen pydantic value with a canonical form and a content hash. `Kinded`: a spec that is one of a family.

Canonical form: plain JSON without the fields that hold their default (so defaults written out or left out, key order
and ints for floats make no difference, and a new field with a neutral default leaves old hashes alone). `kind` stays.
A default in a released spec is therefore never changed: that would silently rename every stored variant.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib
import importlib.metadata
import json
import math
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, LiteralString, Self, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from ablate.errors import PluginError
from ablate.spec.described import descriptions

EXACT = 2**53
"""Below it every integral float is one integer."""
LARGEST = 2**31 - 1
"""No integer of a spec is larger, either way. Fields whose number is counted through or laid out have lower bounds."""


def _bound_integers(schema: Any) -> None:
    """Give every integer of a core schema, those of specs below included, the bounds that its field does not state."""
    for part in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(part, (dict, list, tuple)):
            _bound_integers(part)
    if isinstance(schema, dict) and schema.get("type") == "int":
        if not {"le", "lt"} & schema.keys():
            schema["le"] = LARGEST
        if not {"ge", "gt"} & schema.keys():
            schema["ge"] = -LARGEST


class Spec(BaseModel):
    """A frozen value that refuses unknown keys; every field has a description."""

    __slots__ = ("_form",)  # the canonical form, once it was asked for from above: specs share the specs below them

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    value_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields that decide values alone, initial ones or those of the optimizer, and nothing of the graph."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _bound_integers(schema)
        return schema

    @model_validator(mode="before")
    @classmethod
    def _know_keys_and_numbers(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            numbers = _numbers(cls)
            if any(key not in numbers or (numbers[key] and isinstance(value[key], bool)) for key in value):
                errors = [*_unknown_keys(cls, value), *_booleans_for_numbers(cls, value)]
                raise ValidationError.from_exception_data("spec", errors)
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        plain = handler(schema)
        properties = handler.resolve_ref_schema(plain).get("properties", {})
        for name, text in descriptions(cls).items():
            properties[name].setdefault("description", text)
        return plain

    def canonical(self) -> Any:
        """Plain JSON that two equal specs share: defaults left out, `kind` kept."""
        return {name: _plain(value, _canonical_below) for name, value in self._written()}

    def structure(self) -> Any:
        """Plain JSON that two specs share whose graphs differ in values alone: all but the fields in `value_fields`."""
        names = (name for name in type(self).model_fields if name not in self.value_fields)
        return {name: _plain(getattr(self, name), lambda spec: spec.structure()) for name in names}

    def editable(self) -> dict[str, Any]:
        """Plain JSON to set paths in, which can be validated again; specs below stay as they are.

        As `canonical`, but a member of a family is kept even where it is the default, so that a path into it finds its
        `kind`. `assign` opens, in the same way, the specs that its path leads into.
        """
        return {name: _plain(value, lambda spec: spec) for name, value in self._written(keep=Kinded)}

    def _written(self, keep: type[Spec] | tuple[()] = ()) -> Iterator[tuple[str, Any]]:
        for name, optional, default in _fields(type(self)):
            value = getattr(self, name)
            at_default = optional and (value is default or value == default)
            if name == "kind" or not at_default or isinstance(value, keep):
                yield name, value

    def canonical_json(self) -> str:
        """`canonical` as one line with sorted keys."""
        return json.dumps(self.canonical(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def content_hash(self) -> str:
        """SHA-256 of the canonical JSON, as 64 hexadecimal digits."""
        return content_hash(self.canonical())


@functools.cache
def _fields(spec: type[Spec]) -> list[tuple[str, bool, Any]]:
    """Each field with whether it may be left out, and what it then is."""
    # Pydantic would copy every default at every call, and every hash asks for all of them.
    return [
        (name, not field.is_required(), None if field.is_required() else field.get_default(call_default_factory=True))
        for name, field in spec.model_fields.items()
    ]


@functools.cache
def _numbers(spec: type[Spec]) -> dict[str, bool]:
    """Each field with whether it takes numbers, and so might take true for 1."""
    return {name: _is_number(field.annotation) for name, field in spec.model_fields.items()}


def _unknown_keys(spec: type[Spec], value: Mapping[Any, Any]) -> Iterator[InitErrorDetails]:
    # Pydantic would refuse unknown keys too, but without the nearest known one.
    known = spec.model_fields
    for key in (str(key) for key in value if key not in known):
        near = difflib.get_close_matches(key, spec.model_fields, n=1)
        remedy = f"Did you mean `{near[0]}`?" if near else f"Known keys: {', '.join(spec.model_fields)}."
        error = PydanticCustomError("unknown_key", "there is no key `{key}` here", {"key": key, "remedy": remedy})
        yield InitErrorDetails(type=error, loc=(key,), input=value.get(key))


def _booleans_for_numbers(spec: type[Spec], value: Mapping[Any, Any]) -> Iterator[InitErrorDetails]:
    # Pydantic, like Python, takes true for 1.
    for name, item in value.items():
        if isinstance(item, bool) and name in spec.model_fields and _is_number(spec.model_fields[name].annotation):
            error = PydanticCustomError("boolean", "a number is expected here")
            yield InitErrorDetails(type=error, loc=(name,), input=item)


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
    """The largest divisor of a number that is at most `most`; looks no further than its square root."""
    small = [divisor for divisor in range(1, min(most, math.isqrt(number)) + 1) if number % divisor == 0]
    return max([*small, *(number // divisor for divisor in small if number // divisor <= most)])


def content_hash(plain: Any) -> str:
    """SHA-256 of plain JSON data, as 64 hexadecimal digits; key order makes no difference."""
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


_WRITTEN_AS_THEY_ARE = frozenset({str, int, bool, type(None)})  # asked first, as a plan asks a million times


def _plain(value: Any, form: Callable[[Spec], Any]) -> Any:
    if type(value) in _WRITTEN_AS_THEY_ARE:
        return value
    if isinstance(value, Spec):
        return form(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, form) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, form) for item in value]
    # As in RFC 8785, a number is written by its value alone: 1.0 as 1, and -0.0 as 0. Other floats have one shortest
    # decimal form, the same on every platform.
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
        return int(value)
    return value


def _canonical_below(spec: Spec) -> Any:
    try:
        return spec._form  # type: ignore[attr-defined]
    except AttributeError:
        form = spec.canonical()
        object.__setattr__(spec, "_form", form)
        return form


def refusal(
    path: tuple[str | int, ...], value: Any, rule: str, remedy: str, *, kind: LiteralString = "impossible"
) -> ValidationError:
    """The error of a combination that cannot be; raise it from a validator.

    Args:
        path: Field path below the spec that raises it.
        value: The offending value.
        rule: What must hold, as a sentence.
        remedy: The way out, as an instruction.
        kind: `impossible` for values that do not fit together, as another switch may mend that; else another word.
    """
    error = PydanticCustomError(kind, "{rule}", {"rule": rule, "remedy": remedy})
    return ValidationError.from_exception_data("spec", [InitErrorDetails(type=error, loc=path, input=value)])


def below(prefix: tuple[str | int, ...], error: ValidationError) -> ValidationError:
    """The same error with every path put below `prefix`."""
    details: list[InitErrorDetails] = []
    for line in error.errors(include_url=False):
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
            remedy="Mend that package, or uninstall it.",
        ) from error


class Family:
    """All kinds of one sort of spec (mixers, tasks, designs ...), found by importing a package's modules.

    Args:
        noun: What a member is called in messages.
        package: The package whose modules each define kinds; imported when a kind is first looked up.
        entry_points: Entry point group through which installed packages bring more kinds.
        other: The way out for a name that is no kind, and yet the name of something else; None if it is none either.
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
        """Make a kind known; the last definition of a kind in one module wins, two modules may not share a kind."""
        if not member.__module__.startswith(f"{self.package}."):
            self.members()  # the kinds of the package first, so that a duplicate is the mistake of the other module
        known = self._members.get(member.kind_name())
        if known is not None and known.__module__ != member.__module__:
            raise TypeError(
                f"the {self.noun} kind {member.kind_name()!r} is defined in {known.__module__} and {member.__module__}"
            )
        self._members[member.kind_name()] = member

    def members(self) -> dict[str, type[Kinded]]:
        """Kind to spec class, sorted by kind."""
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

    def defined_in(self, module: str) -> dict[str, type[Kinded]]:
        """The kinds of one module, as far as they are known; nothing is imported."""
        return {kind: member for kind, member in self._members.items() if member.__module__ == module}

    def member(self, kind: object) -> type[Kinded]:
        """The spec class of a kind.

        Raises:
            PydanticCustomError: There is no such kind; the message names the nearest.
        """
        members = self.members()
        if isinstance(kind, str) and kind in members:
            return members[kind]
        near = difflib.get_close_matches(str(kind), members, n=1)
        hint = f"Did you mean `{near[0]}`?" if near else f"Known kinds: {', '.join(members)}."
        remedy = self._other(str(kind)) or hint
        raise PydanticCustomError(
            "unknown_kind",
            "there is no {noun} kind `{kind}`",
            {"noun": self.noun, "kind": str(kind), "remedy": remedy},
        )


class Kinded(Spec):
    """A spec that is one of a family. An abstract subclass names `family`, a final one adds `kind: Literal[...]`."""

    family: ClassVar[Family]
    default_kind: ClassVar[str | None] = None
    """The kind of a mapping that does not say its `kind`; None if it must say it."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "kind" in cls.model_fields:
            cls.family.add(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        plain = super().__get_pydantic_json_schema__(schema, handler)
        body = handler.resolve_ref_schema(plain)
        if "kind" in body.get("properties", {}):  # `kind` has a default in Python; a file must say it
            body["properties"]["kind"].setdefault("description", (cls.__doc__ or "").partition("\n")[0])
            fields = [name for name in body.get("required", ()) if name != "kind"]
            body["required"] = fields if cls.kind_name() == cls.default_kind else ["kind", *fields]
        return plain

    def settings_as_parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """The settings that are no default as rows of (slot, label), for a picture."""
        plain = self.canonical()
        return tuple(((name, f"{name.replace('_', ' ')}: {plain[name]}"),) for name in plain if name != "kind")

    @classmethod
    def kind_name(cls) -> str:
        """The value of `kind` that names this class in a file."""
        kind: str = cls.model_fields["kind"].default
        return kind

    @classmethod
    def facts(cls) -> dict[str, str | bool]:
        """What a list of kinds says of this one, besides its description."""
        return {}

    @classmethod
    def default(cls) -> Self:
        """The member of the family that stands where none is named: its default kind with all defaults."""
        return _default(cls)  # type: ignore[return-value]

    @classmethod
    def parse(cls, value: object) -> Self:
        """A member of the family from plain data: a mapping with `kind`, or a bare kind name.

        Raises:
            ValidationError: The data is no valid member.
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
                "this {noun} does not say its `kind`",
                {"noun": noun, "remedy": f"Add `kind:` with one of {', '.join(cls.family.members())}."},
            )
        try:
            member = cls.family.member(plain["kind"])
        except PydanticCustomError as error:
            loc = () if isinstance(value, str) else ("kind",)
            details = InitErrorDetails(type=error, loc=loc, input=plain["kind"])
            raise ValidationError.from_exception_data("spec", [details]) from None
        return member.model_validate(plain)  # type: ignore[return-value]


@functools.cache
def _default(base: type[Kinded]) -> Kinded:
    return base.parse(base.default_kind)

"""`Spec`: a frozen pydantic value with a canonical form and a content hash. `Kinded`: a spec that is one of a family.

Canonical form: plain JSON without the fields that hold their default (so defaults written out or left out, key order
and ints for floats make no difference, and a new field with a neutral default leaves old hashes alone). `kind` stays.
A default in a released spec is therefore never changed: that would silently rename every stored variant.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.metadata
import json
import pkgutil
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema


class Spec(BaseModel):
    """A frozen value that refuses unknown keys; every field has a description."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _know_every_key(cls, value: Any) -> Any:
        # Pydantic would refuse unknown keys too, but without the nearest known one.
        if isinstance(value, Mapping):
            unknown = [str(key) for key in value if key not in cls.model_fields]
            if unknown:
                raise _unknown_keys(cls, unknown, value)
        return value

    def canonical(self) -> Any:
        """Plain JSON that two equal specs share: defaults left out, `kind` kept."""
        plain: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name == "kind" or field.is_required() or value != field.get_default(call_default_factory=True):
                plain[name] = _plain(value)
        return plain

    def canonical_json(self) -> str:
        """`canonical` as one line with sorted keys."""
        return json.dumps(self.canonical(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def content_hash(self) -> str:
        """SHA-256 of the canonical JSON, as 64 hexadecimal digits."""
        return content_hash(self.canonical())


def _unknown_keys(spec: type[Spec], unknown: list[str], value: Mapping[Any, Any]) -> ValidationError:
    details: list[InitErrorDetails] = []
    for key in unknown:
        near = difflib.get_close_matches(key, spec.model_fields, n=1)
        remedy = f"Did you mean `{near[0]}`?" if near else f"Known keys: {', '.join(spec.model_fields)}."
        error = PydanticCustomError("unknown_key", "there is no key `{key}` here", {"key": key, "remedy": remedy})
        details.append(InitErrorDetails(type=error, loc=(key,), input=value.get(key)))
    return ValidationError.from_exception_data("spec", details)


def content_hash(plain: Any) -> str:
    """SHA-256 of plain JSON data, as 64 hexadecimal digits; key order makes no difference."""
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, Spec):
        return value.canonical()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def refusal(path: tuple[str | int, ...], value: Any, rule: str, remedy: str) -> ValidationError:
    """The error of a combination that cannot be; raise it from a validator.

    Args:
        path: Field path below the spec that raises it.
        value: The offending value.
        rule: What must hold, as a sentence.
        remedy: The way out, as an instruction.
    """
    error = PydanticCustomError("impossible", "{rule}", {"rule": rule, "remedy": remedy})
    return ValidationError.from_exception_data("spec", [InitErrorDetails(type=error, loc=path, input=value)])


def below(prefix: tuple[str | int, ...], error: ValidationError) -> ValidationError:
    """The same error with every path put below `prefix`."""
    details: list[InitErrorDetails] = []
    for line in error.errors(include_url=False):
        kind = PydanticCustomError(line["type"], "{text}", {**line.get("ctx", {}), "text": line["msg"]})  # type: ignore[arg-type]
        details.append(InitErrorDetails(type=kind, loc=(*prefix, *line["loc"]), input=line["input"]))
    return ValidationError.from_exception_data("spec", details)


class Family:
    """All kinds of one sort of spec (mixers, tasks, designs ...), found by importing a package's modules.

    Args:
        noun: What a member is called in messages.
        package: The package whose modules each define kinds; imported when a kind is first looked up.
        entry_points: Entry point group through which installed packages bring more kinds.
    """

    def __init__(self, noun: str, package: str | None = None, entry_points: str | None = None) -> None:
        self.noun = noun
        self.package = package
        self.entry_points = entry_points
        self._members: dict[str, type[Kinded]] = {}
        self._discovered = package is None

    def add(self, member: type[Kinded]) -> None:
        """Make a kind known; the last definition of a kind in one module wins, two modules may not share a kind."""
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
                    entry.load()
        return dict(sorted(self._members.items()))

    def member(self, kind: object) -> type[Kinded]:
        """The spec class of a kind.

        Raises:
            PydanticCustomError: There is no such kind; the message names the nearest.
        """
        members = self.members()
        if isinstance(kind, str) and kind in members:
            return members[kind]
        near = difflib.get_close_matches(str(kind), members, n=1)
        remedy = f"Did you mean {near[0]!r}?" if near else f"Known kinds: {', '.join(members)}."
        raise PydanticCustomError(
            "unknown_kind",
            "there is no {noun} kind {kind}",
            {"noun": self.noun, "kind": repr(kind), "remedy": remedy, "expected": f"one of {', '.join(members)}"},
        )


class Kinded(Spec):
    """A spec that is one of a family. An abstract subclass names the `family`; a final one adds `kind: Literal[...]`."""

    family: ClassVar[Family]

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "kind" in cls.model_fields:
            cls.family.add(cls)

    @classmethod
    def kind_name(cls) -> str:
        """The value of `kind` that names this class in a file."""
        kind: str = cls.model_fields["kind"].default
        return kind

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
        if "kind" not in plain:
            raise PydanticCustomError(
                "missing_kind",
                "this {noun} does not say its `kind`",
                {"noun": noun, "remedy": f"Add `kind:` with one of {', '.join(cls.family.members())}."},
            )
        member = cls.family.member(plain["kind"])
        return member.model_validate(plain)  # type: ignore[return-value]


class OneOf:
    """Annotation for a field that holds any member of a family: `Annotated[MixerSpec, OneOf]`.

    The union is looked up when a value is validated, so that plugins loaded later are members too.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[Kinded], handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            source.parse,
            metadata={"family": source},
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value, info: value.model_dump(mode=info.mode, exclude_defaults=info.exclude_defaults),
                info_arg=True,
            ),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        source = schema["metadata"]["family"]
        members = source.family.members()
        options: list[JsonSchemaValue] = [{"enum": list(members)}]
        options += [handler(member.__pydantic_core_schema__) for member in members.values()]
        return {"anyOf": options, "description": f"A {source.family.noun}: a bare kind name, or a mapping with `kind`."}

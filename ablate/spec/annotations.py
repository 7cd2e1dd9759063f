"""Annotations for fields of specs.

`OneOf` (any member of a family), `ShortFor` (a bare value stands for a mapping), `ByForm` (a bare value or a mapping),
`Number` (whole or not), `Spelling` (a name's form). And `default_kind`, the default of a field that holds a kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, SchemaValidator, core_schema

from ablate.spec.base import EXACT, Kinded, Spec


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
        members = schema["metadata"]["family"].family.members()
        # Within definitions (none, here) a member's schema is made as that of any model, `Kinded`'s hook included.
        options = {
            kind: handler(core_schema.definitions_schema(member.__pydantic_core_schema__, []))
            for kind, member in members.items()
        }
        # A bare name will do for a kind that needs nothing else.
        required = {kind: handler.resolve_ref_schema(option)["required"] for kind, option in options.items()}
        bare = [kind for kind, names in required.items() if set(names) <= {"kind"}]
        return {"anyOf": [*([{"enum": bare}] if bare else []), *options.values()]}


def default_kind(family: type[Kinded]) -> Any:
    """The default of a field that holds a member of a family: its default kind, looked up when it is first needed."""
    return Field(default_factory=family.default, json_schema_extra={"default": {"kind": str(family.default_kind)}})


@dataclass(frozen=True, slots=True)
class ShortFor:
    """Annotation for a field that also takes a bare value: `Annotated[NormSpec, ShortFor("kind")]`.

    Args:
        field: The field that a bare word or number stands for, the others being left at their defaults.
    """

    field: str

    def __get_pydantic_core_schema__(self, source: type[Spec], handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._written_out, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        whole = handler(schema)
        field = handler.resolve_ref_schema(whole)["properties"][self.field]
        bare = {key: value for key, value in field.items() if key not in {"title", "default", "description"}}
        return {"anyOf": [bare, whole]}

    def _written_out(self, value: Any) -> Any:
        is_bare = isinstance(value, (str, int, float)) and not isinstance(value, bool)
        return {self.field: value} if is_bare else value


class ByForm:
    """Annotation for a field that holds a bare value or a spec: `Annotated[int | SeedsSpec, ByForm]`.

    A mapping is the spec and all else the bare value, so that what is wrong is told of that one alone.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        bare, spec = get_args(source)
        bare_value = SchemaValidator(handler.generate_schema(bare))

        def by_form(value: Any) -> Any:
            is_spec = isinstance(value, (Mapping, spec))
            return spec.model_validate(value) if is_spec else bare_value.validate_python(value)

        return core_schema.no_info_before_validator_function(by_form, handler(source))


class _WholeOrNot:
    """Annotation for a number that stays whole where it is written as one; what is none is told once, not of each."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        either: Any = {**handler(source), "custom_error_type": "float_type"}
        return core_schema.no_info_before_validator_function(cls._no_boolean, either)

    @staticmethod
    def _no_boolean(value: Any) -> Any:
        if isinstance(value, bool):
            raise PydanticCustomError("boolean", "a number is expected here")
        return value


Number = Annotated[Annotated[int, Field(ge=-EXACT, le=EXACT)] | float, _WholeOrNot]
"""A whole number, which stays one, or any other."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """Annotation for a name: `Annotated[str, Spelling(pattern, rule)]`. A bare number, true or false is a name too.

    Args:
        pattern: Regular expression of the whole name.
        rule: What it means, as a sentence.
    """

    pattern: str
    rule: str

    def __get_pydantic_core_schema__(self, source: type[str], handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._spelt, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": ["string", "number", "boolean"], "pattern": self.pattern}

    def _spelt(self, value: Any) -> Any:
        if isinstance(value, (bool, int, float)):
            value = str(value).lower() if isinstance(value, bool) else str(value)
        if isinstance(value, str) and not self.fits(value):
            raise PydanticCustomError("spelling", "{rule}", {"rule": self.rule})
        return value

    def fits(self, name: str) -> bool:
        """Whether a name is spelt so."""
        return re.search(self.pattern, name) is not None


STUDY_NAME = Spelling(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
    "a name is letters (a-z, A-Z), digits, `.`, `_` and `-`, begins with a letter or digit, and is at most 100 long",
)
"""Name of a space, and so of its study."""

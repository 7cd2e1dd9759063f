"""Annotations for fields of specs.

`OneOf` (any member of a family), `ShortFor` (a bare value as short form of a mapping), `ByForm` (a bare value or a
mapping), `Number` (integer or float), `Spelling` (the form of a name). `default_kind` is the default of a field that
holds a kind. `without_settings` is for the kinds `none`, which have no settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, SchemaValidator, core_schema

from ablate.spec.base import EXACT, Kinded, Spec, refusal


class OneOf:
    """Annotation for a field that holds any member of a family: `Annotated[MixerSpec, OneOf]`.

    The members are looked up when a value is validated, so that plugins can be loaded later.
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
        # Wrapped in (empty) definitions, the schema of a member is generated with the hook of `Kinded`.
        options = {
            kind: handler(core_schema.definitions_schema(member.__pydantic_core_schema__, []))
            for kind, member in members.items()
        }
        # A bare name suffices for kinds without other required fields.
        required = {kind: handler.resolve_ref_schema(option)["required"] for kind, option in options.items()}
        bare = [kind for kind, names in required.items() if set(names) <= {"kind"}]
        return {"anyOf": [*([{"enum": bare}] if bare else []), *options.values()]}


def default_kind(family: type[Kinded]) -> Any:
    """Field default for a member of a family: its default kind, looked up at first use."""
    return Field(default_factory=family.default, json_schema_extra={"default": {"kind": str(family.default_kind)}})


@dataclass(frozen=True, slots=True)
class ShortFor:
    """Annotation for a field that also takes a bare value: `Annotated[NormSpec, ShortFor("kind")]`.

    Args:
        field: The field that a bare word or number sets; the others keep their defaults.
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

    A mapping is validated as the spec and anything else as the bare value, so that errors mention only one alternative.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        bare, spec = get_args(source)
        bare_value = SchemaValidator(handler.generate_schema(bare))

        def by_form(value: Any) -> Any:
            is_spec = isinstance(value, (Mapping, spec))
            return spec.model_validate(value) if is_spec else bare_value.validate_python(value)

        return core_schema.no_info_before_validator_function(by_form, handler(source))


class _IntegerOrFloat:
    """Annotation for a number that keeps integers as integers, with one error per value that is not a number."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        either: Any = {**handler(source), "custom_error_type": "float_type"}
        return core_schema.no_info_before_validator_function(cls._no_boolean, either)

    @staticmethod
    def _no_boolean(value: Any) -> Any:
        if isinstance(value, bool):
            raise PydanticCustomError("boolean", "a number is expected here")
        return value


Number = Annotated[Annotated[int, Field(ge=-EXACT, le=EXACT)] | float, _IntegerOrFloat]
"""An integer, which stays an integer, or a float."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """Annotation for a name: `Annotated[str, Spelling(pattern, rule)]`. Bare numbers and booleans are names too.

    Args:
        pattern: Regular expression for the name.
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
        """Whether a name matches the pattern."""
        return re.search(self.pattern, name) is not None


STUDY_NAME = Spelling(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
    "a name is letters (a-z, A-Z), digits, `.`, `_` and `-`, starts with a letter or digit, and is at most 100 long",
)
"""Name of a space and of its study."""


def without_settings(value: Any, name: str, stored: Mapping[str, Any]) -> Any:
    """Remove settings with default values from the data of a kind `none`; earlier versions stored them.

    Args:
        name: Name of the slot, for the message.

    Raises:
        ValidationError: A setting is not at its default. Equal blocks would have different hashes.
    """
    if not isinstance(value, Mapping):
        return value
    for setting, default in stored.items():
        if setting in value and value[setting] != default:
            raise refusal(
                (setting,),
                value[setting],
                f"kind `none` has no `{setting}`",
                f"Write `{name}: none` without settings.",
            )
    return {key: item for key, item in value.items() if key not in stored}

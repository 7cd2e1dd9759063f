"""Annotations for fields of specs.

`OneOf` (any member of a family), `ShortFor` (a bare value stands for a mapping), `Spelling` (a name's form).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from ablate.spec.base import Kinded, Spec


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
        bare = [kind for kind, option in options.items() if handler.resolve_ref_schema(option)["required"] == ["kind"]]
        return {"anyOf": [*([{"enum": bare}] if bare else []), *options.values()]}


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
        if isinstance(value, str) and not re.search(self.pattern, value):
            raise PydanticCustomError("spelling", "{rule}", {"rule": self.rule})
        return value

"""Settings worth trying of a kind, read off its schema: all defaults, and every one and two named choices changed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import ValidationError

from ablate.spec.base import Kinded, Spec

_FEW = 16
"""The most alternatives of a choice that is changed together with another one."""

Member = TypeVar("Member", bound=Kinded)


def settings(kind: type[Member], given: Mapping[str, Any] | None = None) -> Iterator[Member]:
    """The specs of a kind that differ from its defaults in at most two named choices; impossible ones are left out.

    Choices of many, such as the activations of torch, are changed one at a time.

    A named choice is a field that holds a literal, a truth value, a member of a family, or a spec with a `kind`.

    Args:
        kind: The kind.
        given: Values of fields, which are then not choices; those that have no default must be among them.

    Raises:
        ValidationError: The kind has a field without a default.
    """
    given = given or {}
    first = kind.model_validate(given)
    seen = {first.content_hash()}
    yield first
    free = [name for name in kind.model_fields if name not in ("kind", *given)]
    choices = {name: _choices(kind, name) for name in free}
    few = [(name, value) for name, values in choices.items() if len(values) <= _FEW for value in values]
    many = [(name, value) for name, values in choices.items() if len(values) > _FEW for value in values]
    for pair in [*itertools.combinations_with_replacement(few, 2), *((choice, choice) for choice in many)]:
        try:
            spec = kind.model_validate({**given, **dict(pair)})
        except ValidationError:
            continue
        if spec.content_hash() not in seen:
            seen.add(spec.content_hash())
            yield spec


def _choices(kind: type[Kinded], name: str) -> list[Any]:
    field = kind.model_fields[name]
    return _values(field.annotation)


def _values(annotation: Any) -> list[Any]:
    origin = get_origin(annotation)
    if origin is Literal:
        return list(get_args(annotation))
    if origin in (Union, UnionType):
        return [value for part in get_args(annotation) if part is not NoneType for value in _values(part)]
    if annotation is bool:
        return [False, True]
    if isinstance(annotation, type) and issubclass(annotation, Kinded):
        return [{"kind": member} for member in annotation.family.members()]
    if isinstance(annotation, type) and issubclass(annotation, Spec) and "kind" in annotation.model_fields:
        return [{"kind": value} for value in _values(annotation.model_fields["kind"].annotation)]
    return []

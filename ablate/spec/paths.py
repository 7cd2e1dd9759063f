"""Dotted paths into plain data: how a switch names the fields that it sets."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any

from ablate.spec.base import Spec


class PathError(ValueError):
    """A path that leads through something that is no mapping."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


def assign(plain: dict[str, Any], path: str, value: Any) -> None:
    """Set `path` in nested mappings to `value`, in place; nothing is merged, mappings on the way are made.

    A spec on the way is opened into a mapping, and those beside it stay: they need no second validation. A bare kind
    name on the way (`value: identity`) counts as `{kind: identity}`.

    Raises:
        PathError: The path is empty or leads through a value that is no mapping.
    """
    *parents, last = path.split(".")
    if not all((*parents, last)):
        raise PathError(f"`{path}` is no path", "Write field names joined by single dots.")
    here = plain
    for depth, name in enumerate(parents):
        below = here.get(name)
        if below is None:
            below = here[name] = {}
        elif isinstance(below, str):
            below = here[name] = {"kind": below}
        elif isinstance(below, Spec):
            below = here[name] = below.editable()
        elif not isinstance(below, dict):
            reached = ".".join(parents[: depth + 1])
            raise PathError(f"`{reached}` is {below!r} and has no fields", f"Set `{reached}` as a whole.")
        here = below
    here[last] = copy.deepcopy(value)


def lay_over(plain: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """Lay `patch` over nested mappings, in place: mappings merge key by key, one that names a `kind` replaces."""
    for key, value in patch.items():
        below = plain.get(key)
        if isinstance(value, Mapping) and isinstance(below, dict) and "kind" not in value:
            lay_over(below, value)
        else:
            plain[key] = copy.deepcopy(value)


def leaves(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The values of nested mappings by their dotted paths; a list, and a mapping with nothing in it, is one value."""
    found: dict[str, Any] = {}
    for key, value in plain.items():
        if isinstance(value, Mapping) and value:
            found |= {f"{key}.{path}": leaf for path, leaf in leaves(value).items()}
        else:
            found[key] = value
    return found


def value_at(plain: Mapping[str, Any], path: str) -> Any:
    """The value at a path of nested mappings, which must exist."""
    return functools.reduce(lambda here, name: here[name], path.split("."), plain)


def overlaps(left: str, right: str) -> bool:
    """Whether one path is the other or lies below it."""
    return f"{left}.".startswith(f"{right}.") or f"{right}.".startswith(f"{left}.")

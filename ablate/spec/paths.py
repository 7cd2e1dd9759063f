"""The plain data of a space: dotted paths into nested mappings, with which switches address fields, and texts.

A text says what a switch, setting or variant removes or replaces, for reports. It is written as `removes: the skip
around attention` or `replaces: attention by a mean` in a switch (for all its settings without a text), in a setting
next to its paths, or in a named variant. Texts do not affect trials. This module reads plain data, so that reports need
no validation library.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from ablate.spec.base import Spec


class PathError(ValueError):
    """A path that leads through a value that is not a mapping."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


def full_path(path: str) -> str:
    """The full form of a spec path: `block` is short for `model.block`."""
    return f"model.{path}" if path == "block" or path.startswith("block.") else path


def short_path(path: str) -> str:
    """The short form of a spec path, as people write it."""
    return path.removeprefix("model.") if f"{path}.".startswith("model.block.") else path


def longer(plain: Any, times: float, path: str = "") -> Any:
    """The plain data of a space in which all training runs, those of stages too, are so many times as long."""
    if isinstance(plain, Mapping):
        return {name: longer(value, times, f"{path}.{name}") for name, value in plain.items()}
    if isinstance(plain, int | float) and path.endswith(".training.steps"):
        return round(times * plain)
    if isinstance(plain, int | float) and path.endswith(".design.tokens_per_parameter"):
        return times * plain
    return plain


def assign(plain: dict[str, Any], path: str, value: Any) -> None:
    """Set `path` in nested mappings to `value`, in place. Missing mappings are created; nothing is merged.

    A spec on the path is converted to a mapping; other specs are kept, so that they need not be validated again. A bare
    kind name on the path (`value: identity`) counts as `{kind: identity}`.

    An item of a list is named by its number from 0 (`model.pattern.3.mixer`); the list is replaced by a copy.

    Raises:
        PathError: The path is empty, or leads through a value that is not a mapping or past the end of a list.
    """
    names = path.split(".")
    if not all(names):
        raise PathError(f"`{path}` is not a path", "Write field names joined by single dots.")
    here: Any = plain
    for depth in range(len(names) - 1):
        key = _key(here, names, depth)
        below = here.get(key) if isinstance(here, dict) else here[key]
        if below is None:
            below = {}
        elif isinstance(below, str):
            below = {"kind": below}
        elif isinstance(below, Spec):
            below = below.editable()
        elif isinstance(below, list | tuple):
            below = copy.deepcopy(list(below))
        elif not isinstance(below, dict):
            reached = ".".join(names[: depth + 1])
            raise PathError(
                f"`{reached}` is {below!r} and has no fields",
                f"Set `{reached}` itself: `{reached}: VALUE`, or a mapping that has `{names[depth + 1]}`.",
            )
        here[key] = below
        here = below
    here[_key(here, names, len(names) - 1)] = copy.deepcopy(value)


def _key(here: dict[str, Any] | list[Any], names: list[str], depth: int) -> Any:
    """The key of a mapping, or the index of a list, that a name of a path stands for."""
    name = names[depth]
    if isinstance(here, dict):
        return name
    reached = ".".join(names[:depth])
    if not (name.isascii() and name.isdigit() and int(name) < len(here)):
        remedy = f"Its items are numbered from 0 to {len(here) - 1}." if here else f"Set `{reached}` itself."
        raise PathError(f"`{reached}` is a list of {len(here)}, and has no item `{name}`", remedy)
    return int(name)


def lay_over(plain: dict[str, Any], patch: Mapping[str, Any], *, null_removes: bool = False) -> None:
    """Merge `patch` into nested mappings, in place, key by key; a mapping with a `kind` replaces.

    Args:
        patch: What is laid over them.
        null_removes: Whether null removes a key, instead of being its value.
    """
    for key, value in patch.items():
        below = plain.get(key)
        if value is None and null_removes:
            plain.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(below, dict) and "kind" not in value:
            lay_over(below, value, null_removes=null_removes)
        else:
            plain[key] = copy.deepcopy(value)


def leaves(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The values of nested mappings by dotted path; lists and empty mappings are values."""
    values: dict[str, Any] = {}
    for key, value in plain.items():
        if isinstance(value, Mapping) and value:
            values |= {f"{key}.{path}": leaf for path, leaf in leaves(value).items()}
        else:
            values[key] = value
    return values


def value_at(plain: Mapping[str, Any], path: str) -> Any:
    """The value at an existing path of nested mappings."""
    return functools.reduce(lambda here, name: here[name], path.split("."), plain)


def overlaps(left: str, right: str) -> bool:
    """Whether one path equals or contains the other."""
    return f"{left}.".startswith(f"{right}.") or f"{right}.".startswith(f"{left}.")


WORDS = ("removes", "replaces")
"""Keys of texts, which cannot be names of switches, settings or paths."""

Place = tuple[str, ...]
"""Path of a mapping in a space: `("switches", SWITCH)`, optionally with SETTING, or `("variants", NAME)`."""


def without_texts(space: Mapping[str, Any]) -> tuple[dict[str, Any], dict[Place, dict[str, Any]]]:
    """The data of a space without its texts, and the texts by the path of their mapping."""
    plain, texts = dict(space), dict[Place, dict[str, Any]]()
    for place, holder in _holders(space):
        *parents, last = place
        here = plain
        for key in parents:
            here[key] = here = dict(here[key])
        here[last] = {key: value for key, value in holder.items() if key not in WORDS}
        if held := {word: holder[word] for word in WORDS if holder.get(word) is not None}:
            texts[tuple(map(name_of, place))] = held
    return plain, texts


def with_texts(space: dict[str, Any], texts: Mapping[Place, Mapping[str, Any]]) -> dict[str, Any]:
    """The data of a space with its texts."""
    for place, text in texts.items():
        here = space
        for key in place:
            here = here.get(key, {})
        here |= text
    return space


def name_of(key: Any) -> str:
    """A YAML key as a name: booleans and numbers are names too."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def _holders(space: Mapping[str, Any]) -> Iterator[tuple[tuple[Any, ...], Mapping[str, Any]]]:
    """The mappings that may have a text, outer ones first. Other values are refused later by validation."""
    switches, variants = space.get("switches"), space.get("variants")
    for switch, settings in switches.items() if isinstance(switches, Mapping) else ():
        if isinstance(settings, Mapping):
            yield ("switches", switch), settings
            for setting, paths in settings.items():
                if isinstance(paths, Mapping) and setting not in WORDS:
                    yield ("switches", switch, setting), paths
    for variant, chosen in variants.items() if isinstance(variants, Mapping) else ():
        if isinstance(chosen, Mapping):
            yield ("variants", variant), chosen

"""The texts of a space: what its switches, settings and variants take away or replace, in words for reports.

A text stands beside what it describes: `removes: the skip around attention` or `replaces: attention by a mean`, in a
switch (for all its settings that have none), in a setting beside its paths, or in a named variant. No text decides a
trial. This module reads plain data, so that reports need no validation library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

WORDS = ("removes", "replaces")
"""Keys of texts: no switch, setting or path has such a name."""

Place = tuple[str, ...]
"""Where a mapping stands in a space: `("switches", SWITCH)`, with its SETTING, or `("variants", NAME)`."""


def without_texts(space: Mapping[str, Any]) -> tuple[dict[str, Any], dict[Place, dict[str, Any]]]:
    """The plain data of a space without its texts, and the texts by the place of the mapping that held them."""
    plain, texts = dict(space), dict[Place, dict[str, Any]]()
    for place, holder in _holders(space):
        *parents, last = place
        here = plain
        for key in parents:
            here[key] = here = dict(here[key])
        here[last] = {key: value for key, value in holder.items() if key not in WORDS}
        if found := {word: holder[word] for word in WORDS if holder.get(word) is not None}:
            texts[tuple(map(name_of, place))] = found
    return plain, texts


def with_texts(space: dict[str, Any], texts: Mapping[Place, Mapping[str, Any]]) -> dict[str, Any]:
    """The plain data of a space with its texts back in their places."""
    for place, text in texts.items():
        here = space
        for key in place:
            here = here.get(key, {})
        here |= text
    return space


def name_of(key: Any) -> str:
    """A key of YAML as the name that it stands for: `true` and numbers are names too."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def _holders(space: Mapping[str, Any]) -> Iterator[tuple[tuple[Any, ...], Mapping[str, Any]]]:
    """The mappings that may hold a text, outer ones first; what is no mapping is for the validation to refuse."""
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

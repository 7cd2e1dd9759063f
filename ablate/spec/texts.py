"""The texts of a space: what its switches, settings and variants remove or replace, for reports.

A text is written as `removes: the skip around attention` or `replaces: attention by a mean` in a switch (for all its
settings without a text), in a setting next to its paths, or in a named variant. Texts do not affect trials. This module
reads plain data, so that reports need no validation library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

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

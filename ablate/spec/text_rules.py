"""The rules of the texts of a space, `removes` and `replaces`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from ablate.spec.base import refusal
from ablate.spec.texts import WORDS, Place, name_of


def check_texts(plain: Mapping[str, Any], texts: Mapping[Place, Mapping[str, Any]]) -> None:
    """Refuse invalid texts, two texts in one place, texts of baseline settings, and reserved names.

    Args:
        plain: The data of a space without its texts.
        texts: The texts by the path of their mapping.

    Raises:
        ValidationError: A text is refused; paths start at the space.
    """
    for place, held in texts.items():
        (word, text), *others = held.items()
        if others:
            rule = "there can be one text, either `removes` or `replaces`"
            remedy = f"Leave one of them out; `{word}: null` removes the text of an extended space."
            raise refusal((*place, word), text, rule, remedy)
        if not isinstance(text, str) or not text.strip():
            rule = f"`{word}` is a text that says what is {word.removesuffix('s')}d"
            raise refusal((*place, word), text, rule, f"Write `{word}: the skip around attention`, for example.")
    for kind, home in (("switches", "switch"), ("variants", "named variant")):
        holders = plain.get(kind)
        for name, holder in holders.items() if isinstance(holders, Mapping) else ():
            if name in WORDS:
                raise refusal(
                    (kind, name),
                    holder,
                    f"`{name}` is the key of a text and cannot be the name of a {home}",
                    "Rename it.",
                )
            if not isinstance(holder, Mapping) or not holder:
                continue
            first = name_of(next(iter(holder)))
            if kind == "switches" and (baseline := (kind, name_of(name), first)) in texts:
                (word, text), *_ = texts[baseline].items()
                rule = f"`{first}` is the baseline's setting, to which the texts of the others refer"
                raise refusal((*baseline, word), text, rule, "Leave the text out, or move it to another setting.")
            _check_words(plain, kind, name, holder)


def _check_words(plain: Mapping[str, Any], kind: str, name: str, holder: Mapping[Any, Any]) -> None:
    """Refuse misspelt keys of texts, which pydantic would report as invalid settings."""
    known = plain.get("switches") if kind == "variants" else ()
    for key, value in holder.items():
        is_text = isinstance(value, str) and key not in (known or ())
        if is_text and (near := difflib.get_close_matches(str(key), WORDS, n=1, cutoff=0.75)):
            raise refusal((kind, name, str(key)), value, f"there is no key `{key}` here", f"Did you mean `{near[0]}`?")

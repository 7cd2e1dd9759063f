"""Drafts of spaces: checked in a separate process, and stored in the address."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

import streamlit as st

from ablate.spec.texts import WORDS
from shared.drafters import drafter
from shared.yaml import to_yaml

Draft = dict[str, Any]
ORDER = ("name", "question", "source", "task", "model", "training", "switches", "variants", "design", "objective")
"""Keys of a space in the order in which they are written; others follow."""
PARTS = ("task", "model", "training", "switches", "design", "objective")
"""The required parts of a draft, each a mapping."""
LONGEST = 1_000_000
"""Maximum number of characters of an unpacked draft."""


@st.cache_data(show_spinner=False, max_entries=200)
def _ask(request: str, *, slow: bool) -> Any:
    said = drafter(slow=slow).answer(request)
    return json.loads(said) if said else None


def ask(name: str, *arguments: Any) -> Any:
    """The answer of a function of `drafter.py`; None if its process failed."""
    return _ask(json.dumps([name, *arguments]), slow=name == "plan")


def text_of(draft: Mapping[str, Any]) -> str:
    """A draft as the text of a space file."""
    first = {key: draft[key] for key in ORDER if key in draft}
    return to_yaml(first | {key: value for key, value in draft.items() if key not in first})


def packed(draft: Mapping[str, Any]) -> str:
    """A draft as a parameter of an address."""
    text = json.dumps(draft, separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def unpacked(parameter: str) -> Draft | None:
    """The draft in a parameter of an address; None if it holds none."""
    try:
        squeezed = base64.urlsafe_b64decode(parameter + "=" * (-len(parameter) % 4))
        opened = zlib.decompressobj()
        draft = json.loads(opened.decompress(squeezed, LONGEST)) if squeezed else None
    except (ValueError, zlib.error):
        return None
    return draft if _is_draft(draft) else None


def _is_draft(draft: Any) -> bool:
    """Whether all parts exist and have the right type; their contents are validated later."""
    if not isinstance(draft, dict) or not all(isinstance(draft.get(part), dict) for part in PARTS):
        return False
    variants = draft.get("variants", {})
    settings = [one for one in draft["switches"].values() if isinstance(one, dict)]
    return (
        isinstance(draft["model"].get("block"), dict)
        and len(settings) == len(draft["switches"])
        and all(isinstance(paths, str if key in WORDS else dict) for one in settings for key, paths in one.items())
        and isinstance(variants, dict)
        and all(isinstance(one, dict) for one in variants.values())
    )

"""Sentences with code in backticks: each format writes the code in its own way."""

from __future__ import annotations

import re
from collections.abc import Callable

_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")


def with_code(text: str, plain: Callable[[str], str], code: Callable[[str], str]) -> str:
    """A sentence on one line, without the backticks round its code; a backtick without a partner stays.

    Args:
        text: The sentence.
        plain: Writes what stands outside backticks. It gets pieces of the line and must keep blanks at their ends.
        code: Writes what stands between two backticks; it is not empty and holds no backtick.
    """
    pieces = _SPAN.split(" ".join(text.split()))
    return "".join((code if number % 2 else plain)(piece) for number, piece in enumerate(pieces))


def lead(text: str) -> tuple[str, str]:
    """What a sentence says before its first colon outside code, and what follows it; no lead without such a colon."""
    colon = _SPAN.sub(lambda span: "`" * len(span[0]), text).find(": ")
    return ("", text) if colon < 0 else (text[:colon], text[colon + 2 :])

"""Escapes users' text, so that it is shown literally and never read as Markdown, HTML or a change of text direction.

`st.text`, `st.code`, table cells and the options of select boxes show text literally. Titles, captions, labels and
links are Markdown: all text for them must be escaped by this module. A figure shows text as it is.
"""

from __future__ import annotations

import re

from ablate.render.code_spans import with_code

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|~<>$:&^=@/])")
# Isolates right-to-left text, so that it does not reorder the words around it.
_FIRST_STRONG, _POP = "\u2068", "\u2069"
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
# Text that remark-gfm turns into an e-mail link, after Markdown's escapes have been read.
_MAIL = re.compile(r"(?<=[-.\w+])@(?=[-\w]+\.[-\w])")
_WORD_JOINER = "\u2060"
LONG = 120


def one_line(text: str, longest: int = LONG) -> str:
    """The text on one line, without control characters, truncated with an ellipsis if it is long."""
    line = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split()))
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


def isolated(line: str) -> str:
    """A line in a Unicode direction isolate if it has characters that are not ASCII."""
    return line if line.isascii() else f"{_FIRST_STRONG}{line}{_POP}"


def escape(text: str, longest: int = 10_000) -> str:
    """The text literally, for Markdown; an invisible word joiner prevents `a@b.c` from becoming a link."""
    return isolated(_escaped(one_line(text, longest)))


def prose(text: str, longest: int = 10_000) -> str:
    """A sentence for Markdown: literal text, with text in backticks as code."""
    return isolated(with_code(one_line(text, longest), _escaped, "`{}`".format))


def _escaped(line: str) -> str:
    return _MARKDOWN.sub(r"\\\1", _MAIL.sub(f"@{_WORD_JOINER}", line))

"""Escapes users' text, so that it is shown literally and never read as Markdown, HTML or a change of text direction.

`st.text`, `st.code`, table cells and the options of select boxes show text literally. Titles, captions, labels and
links are Markdown, and Plotly reads tags: all text for them must be escaped by this module.
"""

from __future__ import annotations

import html
import re

from ablate.render.code_spans import with_code

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|~<>$:&^=@/])")
# Isolates right-to-left text, so that it does not reorder the words around it.
_FIRST_STRONG, _POP = "\u2068", "\u2069"
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
# Text that remark-gfm turns into an e-mail link, after Markdown's escapes have been read.
_MAIL = re.compile(r"(?<=[-.\w+])@(?=[-\w]+\.[-\w])")
_PARTS = re.compile(r"(?<=[,:])|(?=@)")
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


def in_lines(text: str, widest: int = 34, most: int = 4) -> str:
    """For a figure: a name in lines, broken after its commas and colons and before its `@`, so that it is narrow.

    Args:
        text: The name.
        widest: Characters of a line; a part that is longer is cut.
        most: Lines; what is beyond is left out.
    """
    lines = [""]
    for part in _PARTS.split(one_line(text, 10_000)):
        if lines[-1] and len(lines[-1]) + len(part) > widest:
            lines.append("")
        lines[-1] += part
    kept = [*lines[: most - 1], "".join(lines[most - 1 :])] if len(lines) > most else lines
    return "<br>".join(for_plotly(line, widest) for line in kept)


def for_plotly(text: str, longest: int = 60) -> str:
    """The text for Plotly, without tags and entities."""
    return isolated(html.escape(one_line(text, longest), quote=False))

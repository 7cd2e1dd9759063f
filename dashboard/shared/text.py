"""Text that users wrote, made harmless: shown as it is, never read as Markdown, HTML or a direction of writing.

`st.text`, `st.code`, table cells and the options of selection boxes show text as it is. Titles, captions, labels and
links are Markdown, and Plotly reads tags: what goes there goes through here.
"""

from __future__ import annotations

import html
import re

from ablate.render.code_spans import with_code

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|~<>$:&^=@/])")
# Isolates what is written from right to left, so that it does not turn the words round it.
_FIRST_STRONG, _POP = "\u2068", "\u2069"
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
# What remark-gfm makes an e-mail link of, in the text that is left when Markdown's escapes are read.
_MAIL = re.compile(r"(?<=[-.\w+])@(?=[-\w]+\.[-\w])")
_PARTS = re.compile(r"(?<=[,:])|(?=@)")
_WORD_JOINER = "\u2060"
LONG = 120


def one_line(text: str, longest: int = LONG) -> str:
    """On one line, without control codes, cut with an ellipsis if it is long."""
    line = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split()))
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


def isolated(line: str) -> str:
    """A line in an isolate of its own if a character in it is not ASCII."""
    return line if line.isascii() else f"{_FIRST_STRONG}{line}{_POP}"


def escape(text: str, longest: int = 10_000) -> str:
    """For Markdown: what it says, letter by letter; an invisible word joiner keeps `a@b.c` from becoming a link."""
    return isolated(_escaped(one_line(text, longest)))


def prose(text: str, longest: int = 10_000) -> str:
    """A sentence for Markdown: what it says, letter by letter, and what it has in backticks as code."""
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
    """For a figure: no tags, no entities."""
    return isolated(html.escape(one_line(text, longest), quote=False))

"""Escapes users' text, so that it is shown literally, and measures it for the columns of tables.

`st.text`, `code`, table cells and the options of select boxes show text literally. Titles, captions, labels and
links are Markdown: all text for them must be escaped by this module. A figure shows text as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate

import pandas as pd

from ablate.render.blocks import with_code

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


def leading_sentences(headline: Sequence[str], longest: int) -> str:
    """As many sentences of an answer as fit in this many characters, at least the first."""
    sentences = re.split(r"(?<=\.) (?=[A-Z])", " ".join(headline))
    lengths = accumulate(len(sentence) + 1 for sentence in sentences)
    return (
        " ".join(sentence for sentence, end in zip(sentences, lengths, strict=True) if end <= longest) or sentences[0]
    )


def isolated(shown: str, line: str) -> str:
    """What is shown of a line, in a Unicode direction isolate if the line has characters that are not ASCII."""
    return shown if line.isascii() else f"{_FIRST_STRONG}{shown}{_POP}"


def escape(text: str, longest: int = 10_000) -> str:
    """The text literally, for Markdown; an invisible word joiner prevents `a@b.c` from becoming a link."""
    line = one_line(text, longest)
    return isolated(_escaped(line), line)


def prose(text: str, longest: int = 10_000) -> str:
    """A sentence for Markdown: literal text, with text in backticks as code."""
    line = one_line(text, longest)
    return isolated(with_code(line, _escaped, "`{}`".format), line)


def _escaped(line: str) -> str:
    return _MARKDOWN.sub(r"\\\1", _MAIL.sub(f"@{_WORD_JOINER}", line))


LETTER, PADDING = 6.4, 24
"""Width of a letter and horizontal padding of a cell, in pixels."""
_LINE, _AROUND, _LEAST = 18, 11, 65
"""Height of a line, vertical padding of a cell and least height of a row with wrapped text, in pixels; Streamlit wraps
text only in rows higher than 64."""


def aligned(numbers: pd.Series) -> str:
    """A format that gives all numbers of a column the same decimals, and the greatest four digits."""
    greatest = max((abs(one) for one in numbers.dropna() if math.isfinite(one)), default=0.0)
    return f"%.{min(8, max(0, 3 - math.floor(math.log10(greatest))))}f" if greatest else "%.4g"


def fitting(table: pd.DataFrame, name: str, most: int = 10_000) -> int:
    """The width in pixels at which a column truncates no text, `most` at most."""
    return min(most, math.ceil(PADDING + LETTER * max(map(len, [name, *table[name].dropna()]))))


def wrapping(table: pd.DataFrame, widths: Mapping[str, int]) -> int | None:
    """The row height in pixels that shows all text of these columns; None if each cell fits in one line."""
    longest = {name: max(map(len, table[name].dropna()), default=0) for name in widths}
    lines = max((math.ceil(LETTER * longest[name] / (width - PADDING)) for name, width in widths.items()), default=1)
    return max(_LEAST, _LINE * lines + _AROUND) if lines > 1 else None
